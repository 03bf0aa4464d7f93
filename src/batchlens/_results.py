"""What every result has in common, so that it is at home in a notebook."""

import math
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

# Rows of a table that a notebook shows before it leaves some out.
_MOST_ROWS = 20


class Result:
    """A result: one line that says it, a table, a plot and a document for JSON.

    A subclass has `headline` and `to_frame`, and as a rule `plot` and `as_document`.
    """

    @property
    def headline(self) -> str:
        """The result in one line."""
        raise NotImplementedError

    def to_frame(self) -> "pandas.DataFrame":
        """The result as a table."""
        raise NotImplementedError

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the result on `ax`, or on a new figure."""
        raise NotImplementedError

    def as_document(self) -> dict[str, Any]:
        """The result as JSON has it."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline}>"

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(max_rows=_MOST_ROWS, index=False, na_rep="", border=0)
        return f"<p>{escape(self.headline)}</p>\n{table}"


def axes_or_new(ax: "Axes | None") -> "Axes":
    """`ax`, or the axes of a new figure."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def short(number: float) -> float:
    """An int where the number is whole: 64, not 64.0."""
    return int(number) if number == int(number) else number


def finite(document: Any) -> Any:
    """A document for JSON, which has no infinity: what has diverged is None.

    >>> finite({"risk": [1.0, float("inf")]})
    {'risk': [1.0, None]}
    """
    if isinstance(document, dict):
        return {key: finite(entry) for key, entry in document.items()}
    if isinstance(document, list):
        return [finite(entry) for entry in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document
