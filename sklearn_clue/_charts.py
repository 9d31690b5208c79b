"""Small pictures for pages, as SVG in the colours of the page."""

import html
import math

__all__ = []


class Chart:
    """A small picture with two axes, in the colours of the page."""

    width, height = 360, 240
    left, right, top, bottom = 52, 12, 10, 42

    def __init__(self, x_range, y_range, x_label, y_label):
        self.ranges = x_range, y_range
        self.parts = []
        for value in _ticks(*x_range):
            x, y = self._at(value, y_range[0])
            self.parts.append(
                f'<line class="tick" x1="{x}" y1="{y}" x2="{x}" y2="{y + 4}"/>'
            )
            self._text(x, y + 16, _tick(value), "middle")
        for value in _ticks(*y_range):
            x, y = self._at(x_range[0], value)
            end = self.width - self.right
            self.parts.append(
                f'<line class="grid" x1="{x}" y1="{y}" x2="{end}" y2="{y}"/>'
            )
            self._text(x - 6, y + 4, _tick(value), "end")
        middle = (self.left + self.width - self.right) / 2
        self._text(middle, self.height - 6, x_label, "middle")
        self._text(-self.height / 2 + 16, 12, y_label, "middle", "rotate(-90)")

    def _at(self, x, y):
        (x0, x1), (y0, y1) = self.ranges
        across, up = (x - x0) / ((x1 - x0) or 1), (y - y0) / ((y1 - y0) or 1)
        return (
            round(self.left + across * (self.width - self.left - self.right), 1),
            round(
                self.height - self.bottom - up * (self.height - self.top - self.bottom),
                1,
            ),
        )

    def _text(self, x, y, text, anchor, transform=None):
        transform = f' transform="{transform}"' if transform else ""
        self.parts.append(
            f'<text x="{x}" y="{y}" text-anchor="{anchor}"{transform}>'
            f"{html.escape(text)}</text>"
        )

    def line(self, points, kind):
        """Draw a line of a style."""
        path = " ".join(f"{x},{y}" for x, y in (self._at(*point) for point in points))
        self.parts.append(f'<polyline class="{kind}" points="{path}"/>')

    def dot(self, x, y):
        """Draw a point."""
        x, y = self._at(x, y)
        self.parts.append(f'<circle cx="{x}" cy="{y}" r="4"/>')

    def figure(self, title, words):
        """Give it with the words that say what it shows."""
        return (
            f'<figure><svg viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{html.escape(title)}">{"".join(self.parts)}</svg>'
            f"<figcaption>{html.escape(words)}</figcaption></figure>"
        )


def _ticks(low, high):
    """Five or so round numbers of a range."""
    if not high > low:
        return [low]
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [step * k for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _tick(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
