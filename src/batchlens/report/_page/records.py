"""What a report is made of: claims that were checked and figures that were drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

_Source = TypeVar("_Source")

Verdict = Literal["holds", "holds with a limit", "fails", "not measured"]
NOT_MEASURED: Verdict = "not measured"
# Is told how many parts of a report are done, of how many, and which was the last.
Progress = Callable[[int, int, str], None]


def say_nothing(done: int, total: int, what: str) -> None:
    """The progress of a report that nobody watches."""


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, and what became of it when it was measured."""

    name: str
    sentence: str  # in our words
    source: str  # where the paper says it
    measure: str  # how it is measured
    found: str  # the number, or numbers, found
    threshold: str
    verdict: Verdict
    note: str = ""  # what the limit is


@dataclass(frozen=True)
class Panel:
    """One figure.  `png` and `csv` are file names relative to the page; `svg` is the text of an SVG document."""

    slug: str
    number: str
    title: str
    source: str | None  # where the paper shows it; empty where it does not, None on a page that is not about the paper
    caption: str  # what to see
    alt: str
    svg: str
    png: str
    csv: tuple[str, ...]
    part: str = ""  # of the page, under a heading of its own


@dataclass(frozen=True)
class PanelPlan(Generic[_Source]):
    """A figure to be made.  Panels of the same `numbers` share their CSV."""

    number: str
    title: str
    source: str | None
    caption: str
    numbers: str
    data: "Callable[[_Source], DataFrame]"
    draw: "Callable[[Axes, DataFrame], object]"
    part: str = ""

    @property
    def slug(self) -> str:
        return f"figure-{self.number}"
