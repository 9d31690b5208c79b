"""Images beside their counterfactuals: what would have to change."""

import numpy as np

from sklearn_clue import _rendering, _words
from sklearn_clue.plotting._style import IMAGE_CMAP, check_axes, literal, new_axes

__all__ = ["ImageExplanationDisplay"]


class ImageExplanationDisplay:
    """Images, their counterfactuals, and the difference between the two.

    The difference is the `|Δ|·Δ` of the paper, which keeps the sign and lets small
    noise fade, on one symmetric scale for all rows; over colour channels, of their
    mean.

    Use :meth:`from_explanation` to make one.

    Parameters
    ----------
    originals : ndarray of shape (n_rows, height, width) or (n_rows, height, width, 3)
        The images that are explained.

    counterfactuals : ndarray of the shape of `originals`
        Images the model is surer of.

    differences : ndarray of shape (n_rows, height, width)
        The differences `|Δ|·Δ`.

    captions : list of (str, str)
        For each row the texts beneath original and counterfactual.

    labels : list of str
        The names of the rows.

    method : str, default="CLUE"
        Name of the method, the title of the second column.

    note : str, default=""
        A remark above the images, such as the uncertainty up to which the model is
        sure, and how many rows are not drawn.

    contributions : ndarray of shape (n_rows, height, width), default=None
        What the change of each pixel contributes to the fall of the uncertainty; drawn
        as a fourth column.

    measure : str, default="uncertainty"
        Name and unit of the uncertainty that fell.

    Attributes
    ----------
    axes_ : ndarray of Axes of shape (n_rows, 3) or (n_rows, 4)
        The axes drawn on.

    figure_ : Figure
        Their figure.

    See Also
    --------
    ExplanationDisplay : For rows of a table.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_clue.plotting import ImageExplanationDisplay
    >>> before, after = np.zeros((1, 4, 4)), np.eye(4)[np.newaxis]
    >>> display = ImageExplanationDisplay(
    ...     before, after, after - before, [("0.61 nats", "0.18 nats")], ["row 0"]
    ... ).plot()
    >>> display.axes_.shape
    (1, 3)
    """

    def __init__(
        self,
        originals,
        counterfactuals,
        differences,
        captions,
        labels,
        method="CLUE",
        note="",
        contributions=None,
        measure="uncertainty",
    ):
        self.originals = originals
        self.counterfactuals = counterfactuals
        self.differences = differences
        self.captions = captions
        self.labels = labels
        self.method = method
        self.note = note
        self.contributions = contributions
        self.measure = measure

    @classmethod
    def from_explanation(cls, explanation, *, max_rows=8, ax=None):
        """Draw the first images of an explanation.

        Where it holds `contributions`, a fourth column shows which pixels lower the
        uncertainty by their change.

        Parameters
        ----------
        explanation : Explanation
            What to draw, with an `image_shape`; slice it to choose the rows.

        max_rows : int, default=8
            The number of rows to draw at most.

        ax : array of Axes, default=None
            Where to draw, three per row, or four with `contributions`; None makes a
            new figure.

        Returns
        -------
        display : ImageExplanationDisplay
            The display, drawn.
        """
        facts = explanation[:max_rows].to_dict()
        if facts["image_shape"] is None:
            raise ValueError(
                "The rows of this explanation are not known to be images, since its "
                "image_shape is None. Use ExplanationDisplay.from_explanation, or fit "
                "the explainer with a generator that has an image_shape."
            )
        if not facts["rows"]:
            raise ValueError("The explanation has no rows to draw.")
        pairs = [_words.pixels(row) for row in facts["rows"]]
        unit = f" {facts['unit']}" if facts["unit"] else ""
        captions = [
            tuple(
                f"{_words.figure(row['judged'][when])}{unit}\npredicts {text}"
                for when, text in zip(
                    ("before", "after"), _words.predicted(row, facts), strict=True
                )
            )
            for row in facts["rows"]
        ]
        notes = [_words.bound(facts)]
        if (left_out := len(explanation) - len(pairs)) > 0:
            notes.append(f"{_words.count(left_out)} not drawn, see max_rows")
        parts = [row["pixels"].get("contributions") for row in facts["rows"]]
        parts = None if None in parts else np.asarray(parts, dtype=float)
        if parts is not None and parts.ndim == 4:  # of all channels together
            parts = parts.sum(axis=1)
        return cls(
            np.stack([_drawable(before) for before, _ in pairs]),
            np.stack([_drawable(after) for _, after in pairs]),
            np.stack([_rendering.difference(*pair) for pair in pairs]),
            captions,
            [_words.label(row) for row in facts["rows"]],
            facts["method"],
            "; ".join(note for note in notes if note),
            parts,
            _words.judged_measure(facts) + (f" ({unit.strip()})" if unit else ""),
        ).plot(ax=ax)

    def plot(self, ax=None, *, cmap=IMAGE_CMAP):
        """Draw.

        Parameters
        ----------
        ax : array of Axes, default=None
            Where to draw, three per row, or four with `contributions`; None makes a
            new figure.

        cmap : str or Colormap, default="gray"
            Colours of the images, if they have one channel.

        Returns
        -------
        display : ImageExplanationDisplay
            The display itself, with `axes_` and `figure_`.
        """
        n_rows = len(self.originals)
        n_columns = 3 if self.contributions is None else 4
        if ax is None:
            width = 5.6 if n_columns == 3 else 8.2
            axes = new_axes(n_rows, n_columns, (width, 1.75 * n_rows + 0.5))
        else:
            shape = (n_rows, n_columns)
            axes = check_axes(ax, shape, f"{_words.count(n_rows)} of images")
        images = np.stack([self.originals, self.counterfactuals])
        low, high = min(0.0, images.min()), images.max() if images.max() > 1 else 1.0
        limit = np.abs(self.differences).max() or 1.0
        for row, (original, counterfactual, change, *_) in enumerate(axes):
            for axis, image in (
                (original, self.originals[row]),
                (counterfactual, self.counterfactuals[row]),
            ):
                if image.ndim == 3:  # colours are not scaled by imshow
                    image = (image - low) / (high - low)
                axis.imshow(image, cmap=cmap, vmin=low, vmax=high)
            shown = change.imshow(
                self.differences[row], cmap="PuOr", vmin=-limit, vmax=limit
            )
            original.set_ylabel(literal(self.labels[row], limit=20))
            original.set_xlabel(literal(self.captions[row][0], limit=40))
            counterfactual.set_xlabel(literal(self.captions[row][1], limit=40))
        for axis in axes.flat:
            axis.set_xticks([])
            axis.set_yticks([])
        titles = ("original", literal(self.method), "|Δ|·Δ", "contributions")
        for axis, title in zip(axes[0], titles[:n_columns], strict=True):
            axis.set_title(title)
        self.axes_, self.figure_ = axes, axes[0, 0].figure
        if self.note:
            self.figure_.suptitle(literal(self.note), fontsize="medium")
        self.figure_.colorbar(
            shown,
            ax=axes[:, 2].tolist(),
            label="darker  ←  |Δ|·Δ of the pixels  →  brighter"
            if n_rows > 1
            else "|Δ|·Δ",
            aspect=12 * n_rows,
        )
        if self.contributions is not None:
            self._draw_contributions(axes[:, 3])
        return self

    def _draw_contributions(self, axes):
        limit = np.abs(self.contributions).max() or 1.0
        for axis, values in zip(axes, self.contributions, strict=True):
            shown = axis.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit)
        self.figure_.colorbar(
            shown,
            ax=axes.tolist(),
            label=f"raises  ←  {self.measure}  →  lowers"
            if len(axes) > 1
            else literal(self.measure),
            aspect=12 * len(axes),
        )


def _drawable(image):
    """Three channels are colours, channels last; others are shown by their mean."""
    return image.transpose(1, 2, 0) if len(image) == 3 else image.mean(axis=0)
