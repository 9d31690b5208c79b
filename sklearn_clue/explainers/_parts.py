"""The parts of an explainer: resolved, seeded, fitted, and seen as methods see them."""

import numpy as np
from sklearn.frozen import FrozenEstimator

from sklearn_clue import _tables
from sklearn_clue._fitting import is_frozen
from sklearn_clue.encoding import TabularEncoder
from sklearn_clue.explainers._space import (
    PixelScaler,
    check_same_space,
    unread_columns,
)
from sklearn_clue.providers import (
    AffineInputs,
    as_provider,
    as_table_provider,
    peel,
    same_steps,
    takes_tables,
    thawed,
)


def see_pixels(estimator):
    """Let a predictor of ours see pixels between 0 and 1, and not standardise them."""
    # A pixel that is black in all training images has no scale.
    if not is_frozen(estimator) and getattr(estimator, "encoder", "") is None:
        return estimator.set_params(encoder=PixelScaler())
    return estimator


def fit_generator(generator, predictor, space, inputs, x, fit):
    """Fit a generator in the encoded space of a predictor.

    Parameters
    ----------
    generator : estimator
        To be fitted, or frozen.

    predictor : PredictorView
        Whose encoder a generator without one of its own shares.

    space : EncodedSpace
        The space it must live in.

    inputs : {array-like, DataFrame}
        Training rows as the predictor gets them.

    x : ndarray of shape (n_rows, n_encoded)
        The same rows, encoded.

    fit : callable
        Fits a part to rows.

    Returns
    -------
    generator : estimator
        The fitted generator.
    """
    if is_frozen(generator):
        check_same_space(space, thawed(generator), inputs)
    elif not predictor.is_image and getattr(generator, "encoder", "") is None:
        encoder = predictor.encoder
        generator.set_params(
            encoder="passthrough"
            if encoder is None
            else FrozenEstimator(thawed(encoder))
        )
    # One without an encoder lives in encoded space from the start.
    generator = thawed(fit(generator, inputs if hasattr(generator, "encoder") else x))
    check_same_space(space, generator, inputs)
    return generator


def steps_and_model(estimator, shares_steps):
    """What comes before the model, and the model itself or a list of them."""
    if not shares_steps:
        return peel(estimator)
    peeled = [peel(member) for member in estimator]
    return peeled[0][0], [model for _, model in peeled]


class PredictorView:
    """A fitted estimator as explainers see it.

    Attributes
    ----------
    steps : list of transformers
        What comes before the encoder.

    encoder : transformer or None
        From the input of the predictor to encoded space.

    provider : UncertaintyProvider
        Takes encoded rows.

    shares_steps : bool
        Whether `steps` are those that all members of an ensemble have in common.

    is_image : bool
        Whether rows are pixels.

    unread : list of int
        Positions of columns of the table that no step passes on, where the estimator
        is asked about the table.

    Parameters
    ----------
    estimator : object
        The fitted estimator.

    X : {array-like, DataFrame}
        Training rows.

    is_image : bool
        Whether rows are pixels.

    n_classes : int or None
        Number of classes, if that is known.

    as_whole : bool, default=False
        Whether to ask the estimator about rows of the table, and look at none of its
        steps. A model without gradients is always asked that way.
    """

    def __init__(self, estimator, X, is_image, n_classes, as_whole=False):
        is_list = isinstance(estimator, list)
        self.is_image, self.unread = is_image, []
        self.shares_steps = is_list and same_steps(estimator, X)
        self.steps, model = steps_and_model(estimator, self.shares_steps)
        self.provider = as_provider(model, n_classes)
        if as_whole or takes_tables(self.provider):
            # Encoded space is that of the user's table, whatever the model does.
            self.provider = as_table_provider(estimator, n_classes)
            self.steps, self.encoder = [], TabularEncoder().fit(X)
            self.unread = self._find_unread(estimator if is_list else [estimator], X)
            return
        inputs = X
        for step in self.steps:
            inputs = step.transform(inputs)
        inputs = _tables.dense(inputs)
        if is_image:
            self._read_images(model, inputs)
        elif hasattr(model, "encoder_"):
            self.encoder = model.encoder_
        elif self.steps and isinstance(thawed(self.steps[-1]), TabularEncoder):
            self.encoder = thawed(self.steps.pop())
        else:
            # Models without an encoder take numbers as they are. Distances need them
            # on one scale, so encoded space is standardised all the same.
            self.encoder = TabularEncoder(categorical_features=None).fit(inputs)
            columns = self.encoder.schema_.columns
            self.provider = AffineInputs(
                self.provider,
                [column.center for column in columns],
                [column.scale for column in columns],
            )

    def _find_unread(self, members, X):
        """Columns that are dropped before any of the models could see them."""
        unread = set(range(X.shape[1]))
        for member in members:
            steps, _ = peel(getattr(thawed(member), "best_estimator_", member))
            if not (steps and unread):
                return []

            def transform(rows, steps=steps):
                for step in steps:
                    rows = step.transform(rows)
                return rows

            unread &= set(unread_columns(transform, X))
        return sorted(unread)

    def _read_images(self, model, inputs):
        """Encoded space is that of pixels; the model may have another of its own."""
        self.encoder = PixelScaler().fit(inputs)
        full = 255.0 if self.encoder.dtype_.kind in "iu" else 1.0
        own = getattr(model, "encoder_", None)
        if isinstance(own, PixelScaler):
            return
        center, scale = np.zeros(1), np.full(1, full)
        if isinstance(thawed(own), TabularEncoder):
            columns = thawed(own).schema_.columns
            spread = np.array([column.scale for column in columns])
            center = -np.array([column.center for column in columns]) / spread
            scale = full / spread
        elif own is not None:
            raise ValueError(
                "A predictor of images must take pixels as they are, or encode them "
                f"by TabularEncoder, got the encoder {own!r}. Use "
                "encoder='passthrough'."
            )
        self.provider = AffineInputs(self.provider, center, scale)
