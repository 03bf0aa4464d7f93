"""The paper on one page: its theory computed anew, and each of its claims put to the test."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from batchlens._checks import require_path
from batchlens._results import Result, axes_or_new
from batchlens.report._evidence.judging import JudgedClaim
from batchlens.report._evidence.reading import read_evidence
from batchlens.report._page.frame import summarise
from batchlens.report._page.numbers import frame_of
from batchlens.report._page.records import NOT_MEASURED, Claim, Verdict, say_nothing
from batchlens.report._paper import write_paper
from batchlens.report._theory.study import Study
from batchlens.theory._types import Rounding

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

__all__ = ["Reproduction", "reproduce"]


@dataclass(frozen=True, repr=False)
class Reproduction(Result):
    """What became of the paper's claims, and where the page about them is.

    Arguments:
        claims: every statement of the paper about the model, with what was found and a verdict.
        page: the file to open in a browser; figures and their numbers are beside it.
        networks: every statement about networks, judged on each workload that was measured; none without evidence.

    >>> found = Reproduction(claims=(), page=Path("index.html"))
    >>> found
    <Reproduction: 0 claims hold, 0 hold with a limit, 0 fail.>
    >>> found.as_document()
    {'page': 'index.html', 'claims': [], 'networks': []}
    """

    claims: tuple[Claim, ...]
    page: Path
    networks: tuple[JudgedClaim, ...] = ()

    @property
    def headline(self) -> str:
        """How many claims hold, hold with a limit and fail."""
        return summarise(self.claims)

    def to_frame(self) -> "pandas.DataFrame":
        """A row for each claim, with the columns of claims.csv."""
        return frame_of(vars(claim) for claim in self.claims)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """How many claims have which verdict."""
        ax = axes_or_new(ax)
        verdicts = [verdict for verdict in get_args(Verdict) if verdict != NOT_MEASURED]
        counts = [sum(claim.verdict == verdict for claim in self.claims) for verdict in verdicts]
        ax.bar_label(ax.barh(verdicts, counts))
        ax.invert_yaxis()
        ax.set_xlabel("claims")
        return ax

    def as_document(self) -> dict[str, Any]:
        """What `batchlens reproduce --json` prints."""
        return {
            "page": str(self.page),
            "claims": [dict(vars(claim)) for claim in self.claims],
            "networks": [claim.as_document() for claim in self.networks],
        }


def reproduce(
    out: str | os.PathLike[str] = "report",
    *,
    dim: int = 10_000,
    exponent: float = 1.0,
    bins: int = 100,
    rounding: Rounding = "down",
    target: float = 0.01,
    evidence: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Reproduction:
    """Does what the paper says hold? Computes its figures, checks its claims and writes a page.

    The curvatures are i**-exponent for i from 1 to dim, the gradient noise equals them, and training starts from
    variance 1 (section 3.5 of the paper). The page is index.html; every figure is beside it as SVG and PNG, and its
    numbers as CSV. Files of an earlier report are replaced once all is computed.

    Arguments:
        out: the folder to write into; it is made where there is none.
        dim: how many coordinates the problem has.
        exponent: how fast the curvatures fall.
        bins: into how many groups of equal curvature the coordinates are put; 0 leaves them as they are.
        rounding: which curvature stands for a bin: "down", the smallest, as in the paper, or "mean".
        target: the risk to reach.
        evidence: the folder with the sweeps of real networks, read without torch; without one the page is about the
            theory alone.
        progress: is told how many claims and figures are done, of how many, and which was the last.

    >>> import tempfile
    >>> import batchlens as bl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = bl.reproduce(folder, dim=10, bins=2, target=0.5)
    ...     len(found.claims), found.page.name, found.page.is_file()
    (25, 'index.html', True)
    """
    study = Study.of_power_law(dim, exponent, bins, rounding, target)
    folder = Path(out)
    found = None if evidence is None else read_evidence(require_path("evidence", evidence))
    claims = write_paper(study, folder, found, progress or say_nothing)
    return Reproduction(tuple(claims), folder / "index.html", () if found is None else found.claims)
