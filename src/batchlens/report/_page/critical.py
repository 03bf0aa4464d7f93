"""Critical batch sizes on a page: their definitions in words, the table and its numbers."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from batchlens.report._page.frame import Cell, Section, render_table
from batchlens.scaling._critical import DEFINITIONS
from batchlens.scaling._intervals import Estimate, Interval

DEFINITIONS_WORDS = (
    "Critical batch size: up to where a larger batch saves steps. Knee: where perfect scaling and the plateau meet. "
    "Overhead: the largest batch that costs at most 20% more examples than perfect scaling. Fit: B_crit of "
    "steps = S_min (1 + B_crit / B), B the batch size. Bend: the same with the sharpness fitted too, "
    "steps = S_min (1 + (B_crit / B)^a)^(1/a). "
)


def critical_rows(optimizer: str, estimates: Iterable[Estimate]) -> list[dict[str, Any]]:
    """The critical batch size by each definition, with the interval's ends."""
    return [
        {
            "optimizer": optimizer,
            **found._asdict(),
            "low": None if interval is None else interval.low,
            "high": None if interval is None else interval.high,
        }
        for found, interval in estimates
    ]


def estimate_words(estimate: Estimate) -> str:
    """ "657 (310 to 1,200)"."""
    found, interval = estimate
    return str(found) if found.value is None else f"{found} ({interval or Interval(None, None)})"


def critical_section(more: Sequence[str], rows: Sequence[Sequence[Cell]], remark: str) -> Section:
    """The table of critical batch sizes: the optimizer, each definition, and more columns."""
    heads = ("Optimizer", *(definition.capitalize() for definition in DEFINITIONS), *more)
    table = render_table("Critical batch size of every optimizer", "critical", heads, rows)
    link = '<p class="files"><span>Numbers: <a href="critical.csv">CSV</a></span></p>'
    text = f'{table}\n<p class="remark">{escape(DEFINITIONS_WORDS + remark)}</p>\n{link}'
    return Section("critical", "Critical batch size", text)
