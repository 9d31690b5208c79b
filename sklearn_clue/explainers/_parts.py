"""The parts of an explainer: resolved, seeded, fitted, and seen as methods see them."""

import numpy as np
import torch
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from sklearn_clue.encoding import TabularEncoder
from sklearn_clue.explainers._space import PixelScaler, check_same_space
from sklearn_clue.providers import (
    AffineInputs,
    as_provider,
    as_table_provider,
    is_net,
    peel,
    same_steps,
    takes_tables,
    thawed,
)
from sklearn_clue.uncertainty import UncertaintyProvider


def is_frozen(part):
    """Whether a part says that it is fitted."""
    return isinstance(part, FrozenEstimator)


def is_fitted_already(part):
    """Whether `fit` takes a part as it is."""
    if isinstance(part, list | tuple):
        return all(map(is_fitted_already, part))
    return isinstance(part, FrozenEstimator | torch.nn.Module | UncertaintyProvider)


def fresh(part):
    """A copy to fit; what is fitted already is taken as it is."""
    if isinstance(part, list | tuple):
        return [fresh(member) for member in part]
    return part if is_fitted_already(part) else clone(part)


def seeded(part, seed):
    """Fix what a part leaves to chance; members of a list get seeds of their own."""
    if isinstance(part, list):
        return [seeded(member, seed + position) for position, member in enumerate(part)]
    return _hand_down(part, "random_state", None, int(seed) % (2**31 - 1))


def _hand_down(part, parameter, default, value):
    """Set a parameter of a part, and of its own parts, wherever it is the default."""
    if not hasattr(part, "get_params") or is_frozen(part):
        return part
    names = [
        name
        for name, own in part.get_params(deep=True).items()
        if name.split("__")[-1] == parameter
        # False is no 0: a Pipeline takes nothing but a boolean.
        and type(own) is type(default)
        and own == default
    ]
    return part.set_params(**dict.fromkeys(names, value))


def see_pixels(estimator):
    """Let a predictor of ours see pixels between 0 and 1, and not standardise them."""
    # A pixel that is black in all training images has no scale.
    if not is_frozen(estimator) and getattr(estimator, "encoder", "") is None:
        return estimator.set_params(encoder=PixelScaler())
    return estimator


def fit_part(part, X, y, params, verbose=0):
    """Fit a part, or the members of a list; what is fitted already stays."""
    if isinstance(part, list):
        return [fit_part(member, X, y, params, verbose) for member in part]
    if is_fitted_already(part):
        return part
    # Parts that are silent themselves report as the explainer should.
    part = _hand_down(clone(part), "verbose", 0, verbose)
    if is_net(part):  # it takes the columns of frames apart
        X = np.asarray(X, dtype=np.float32)
    return part.fit(X, y, **params)


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
        self.is_image = is_image
        self.shares_steps = is_list and same_steps(estimator, X)
        self.steps, model = steps_and_model(estimator, self.shares_steps)
        self.provider = as_provider(model, n_classes)
        if as_whole or takes_tables(self.provider):
            # Encoded space is that of the user's table, whatever the model does.
            self.provider = as_table_provider(estimator, n_classes)
            self.steps, self.encoder = [], TabularEncoder().fit(X)
            return
        inputs = X
        for step in self.steps:
            inputs = step.transform(inputs)
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
