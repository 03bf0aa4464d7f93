"""Verdicts on the paper's claims, each with its numbers and how sure it is.

Rules, formulas and thresholds are those of claims.toml, committed before the sweeps were run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from batchlens._arrays import FloatArray
from batchlens.report._evidence.formulas import evaluate, names_in
from batchlens.report._evidence.numbers import NotMeasuredError, Numbers, widest
from batchlens.report._page.records import NOT_MEASURED, Verdict

# A verdict of fewer resamples than this may as well be luck.
SURE = 0.9
Codes = npt.NDArray[np.int64]  # of verdicts, one per draw of the seeds
_VERDICTS: dict[int, Verdict] = {2: "holds", 1: "holds with a limit", 0: "fails", -1: NOT_MEASURED}
_HOLDS, _LIMIT, _FAILS, _UNKNOWN = _VERDICTS


class Value(NamedTuple):
    """A number and between which its resamples lie."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        high = "?" if math.isinf(self.high) else f"{self.high:.3g}"
        return f"{self.value:.3g} ({self.low:.3g} to {high})"


@dataclass(frozen=True)
class Item:
    """What a part of a claim says of one optimizer or pair."""

    part: str
    optimizers: tuple[str, ...]
    values: Mapping[str, Value]
    verdict: Verdict
    reason: str = ""  # why it is not measured, or what to mind
    cells: tuple[tuple[str, int], ...] = ()
    sureness: float | None = None  # share of resamples that come to the same verdict
    warnings: tuple[str, ...] = ()  # of the searches behind its cells
    assumed: bool = False  # whether these are of a scatter that was assumed, not of the fresh seeds

    @property
    def is_order_seen(self) -> bool | None:
        """Whether a critical batch size is told from the one below it; None where it compares none."""
        compares = "raised" in self.values and self.verdict != NOT_MEASURED
        return self.verdict == "holds" if compares else None

    @property
    def sureness_words(self) -> str:
        """ "97%", and what of, where that is not the fresh seeds."""
        return "" if self.sureness is None else _share_words(self.sureness, self.assumed)


@dataclass(frozen=True)
class Judgement:
    """A claim on one workload."""

    sweep: str
    verdict: Verdict
    sureness: float | None  # share of resamples that come to the same verdict
    fragile: tuple[int, ...]  # seeds whose absence would change it, counted from 1
    items: tuple[Item, ...]
    asked: int = 1  # how many items the claim has, of whatever optimizers

    @property
    def assumed(self) -> bool:
        """Whether these are resamples of a scatter that was assumed, not of the fresh seeds."""
        return any(item.assumed for item in self.items)

    @property
    def is_order_seen(self) -> bool:
        """Whether some critical batch size is told from the one below it, where the claim compares any."""
        seen = [item.is_order_seen for item in self.items if item.is_order_seen is not None]
        return not seen or any(seen)

    @property
    def measured(self) -> int:
        """How many of them it rests on."""
        return sum(item.verdict != NOT_MEASURED for item in self.items)

    @property
    def notes(self) -> str:
        """How sure it is, without which seeds it would be another one, and what it rests on; in brackets."""
        if self.sureness is None:
            return ""
        notes = [_share_words(self.sureness, self.assumed)]
        if self.fragile:
            notes.append(f"not without seed {' or '.join(map(str, self.fragile))}")
        if self.measured != self.asked:
            notes.append(f"{self.measured} of {self.asked}")
        if failing := sum(item.verdict == "fails" for item in self.items):
            notes.append(f"{failing} fail{'s' * (failing == 1)}")
        if not self.is_order_seen:
            notes.append("order not seen")
        return f"({', '.join(notes)})"

    @property
    def words(self) -> str:
        """The verdict with its notes."""
        return f"{self.verdict} {self.notes}".rstrip()


@dataclass(frozen=True)
class JudgedClaim:
    """A claim over all workloads."""

    name: str
    sentence: str
    paper: str
    where: str
    parts: tuple[Mapping[str, Any], ...]
    judgements: tuple[Judgement, ...]
    again: tuple[Judgement, ...] = ()  # of sweeps that repeat another one, by the name of that

    @property
    def measured(self) -> list[Judgement]:
        return [entry for entry in self.judgements if entry.verdict != NOT_MEASURED]

    @property
    def verdict(self) -> str:
        """The same words where all workloads agree, else on how many of them it holds."""
        found = {entry.verdict for entry in self.measured}
        if len(found) < 2:
            return next(iter(found), NOT_MEASURED)
        return f"{sum(entry.verdict == 'holds' for entry in self.measured)} of {len(self.measured)}"

    @property
    def in_all(self) -> str:
        """The same in words: "0 of 4 hold, 3 with a limit (1 surely), 1 fails (none surely)"."""
        found = self.measured
        if len({entry.verdict for entry in found}) < 2:
            return f"{self.verdict}{surely_words(found, f' of {len(found)}')}"
        return count_words(found, f" of {len(found)}")

    @property
    def words(self) -> str:
        """The verdict on every workload that was measured."""
        return "; ".join(f"{entry.sweep} {entry.verdict}" for entry in self.measured)

    def repeat_of(self, sweep: str, item: Item) -> Item | None:
        """The same item of the sweep that repeats another one."""
        items = (other for judgement in self.again if judgement.sweep == sweep for other in judgement.items)
        return next((other for other in items if (other.part, other.optimizers) == (item.part, item.optimizers)), None)

    def as_document(self) -> dict[str, Any]:
        """What JSON has of it."""
        return {
            "name": self.name,
            "claim": self.sentence,
            "verdict": self.verdict,
            "workloads": [asdict(entry) for entry in self.judgements],
            "again": [asdict(entry) for entry in self.again],
        }


def count_words(found: Sequence[Item | Judgement], among: str = "") -> str:
    """ "14 hold (6 surely), 3 with a limit (none surely), 1 fails (none surely)"."""
    holding, limited, failing = (
        [entry for entry in found if entry.verdict == verdict] for verdict in ("holds", "holds with a limit", "fails")
    )
    counts = [f"{len(holding)}{among} hold{'s' * (len(holding) == 1)}{surely_words(holding)}"]
    counts += [f"{len(limited)} with a limit{surely_words(limited)}"] if limited else []
    counts += [f"{len(failing)} fail{'s' * (len(failing) == 1)}{surely_words(failing)}"] if failing else []
    return ", ".join(counts)


def surely_words(found: Sequence[Item | Judgement], among: str = "") -> str:
    """ " (2 surely)": how many of them most resamples of the seeds come to; nothing where none has such resamples.

    >>> sure, unsure = (Judgement("digits", "holds", share, (), ()) for share in (0.95, 0.5))
    >>> surely_words([sure, unsure]), surely_words([unsure], " of 1"), surely_words([])
    (' (1 surely)', ' (none of 1 surely)', '')
    """
    shares = [entry.sureness for entry in found if entry.sureness is not None and not entry.assumed]
    return f" ({sum(share >= SURE for share in shares) or 'none'}{among} surely)" if shares else ""


def _share_words(share: float, assumed: bool) -> str:
    return f"{share:.0%}{' by an assumed scatter' * assumed}"


def judge_claim(
    claim: Mapping[str, Any], sweeps: Mapping[str, Numbers | None], repeats: Mapping[str, Numbers] | None = None
) -> JudgedClaim:
    """A claim on every workload that it names; `repeats` are of sweeps that were run again."""
    repeats = repeats or {}
    parts = tuple(claim.get("parts", ()))
    judgements = tuple(_judge(name, parts, sweeps.get(name)) for name in claim["sweeps"])
    again = tuple(_judge(name, parts, repeats[name]) for name in claim["sweeps"] if name in repeats)
    return JudgedClaim(claim["name"], claim["claim"], claim["paper"], claim["where"], parts, judgements, again)


def _judge(name: str, parts: Sequence[Mapping[str, Any]], numbers: Numbers | None) -> Judgement:
    asked = sum(len(part["over"]) for part in parts)
    if numbers is None:
        return Judgement(name, NOT_MEASURED, None, (), (), asked)
    items: list[Item] = []
    codes: list[Codes] = []
    every: list[Codes] = []
    for part in parts:
        judged = [judge_item(part, item, numbers) for item in part["over"] if _is_swept(item, numbers)]
        items += [item for item, _ in judged]
        every += [code for _, code in judged]
        codes.append(part_codes([code for _, code in judged], numbers.draws))
    found = claim_codes(codes, numbers.draws)
    first, last = 1 + np.arange(2) * numbers.seeds
    fragile = tuple(int(seed) + 1 for seed in np.flatnonzero(found[first:last] != found[0]))
    sureness = _sureness(np.where(rests_on_as_much(every, numbers.draws), found, _UNKNOWN), numbers.seeds)
    return Judgement(name, _VERDICTS[int(found[0])], sureness, () if sureness is None else fragile, tuple(items), asked)


def rests_on_as_much(items: Sequence[Codes], draws: int) -> npt.NDArray[np.bool_]:
    """In which draws every item is decided that the seeds as they are decide; fewer make another verdict of it."""
    decided = np.array(items, dtype=np.int64).reshape(len(items), draws) != _UNKNOWN
    found: npt.NDArray[np.bool_] = (decided | ~decided[:, :1]).all(axis=0)
    return found


def _sureness(codes: Codes, seeds: int) -> float | None:
    resampled = codes[1 + seeds :]
    known = codes[0] != _UNKNOWN and len(resampled) > 0
    return float(np.mean(resampled == codes[0])) if known else None


def _is_swept(item: Mapping[str, str], numbers: Numbers) -> bool:
    return set(item.values()) <= set(numbers.sweep.declaration.optimizers)


def judge_item(part: Mapping[str, Any], item: Mapping[str, str], numbers: Numbers) -> tuple[Item, Codes]:
    """What a part says of one optimizer or pair, and that in every draw of the seeds.

    Where a critical batch size is a bound only, or a seed missed its target, it is what holds for all that may be.
    """
    optimizers = tuple(item.values())
    reads_critical = any("critical(" in formula for formula in part["quantities"].values())
    sizes = range(len(optimizers) + 1) if reads_critical else range(1)
    numbers.used.clear()
    try:
        ends = [far for size in sizes for far in combinations(optimizers, size)]
        found = [_try(part, item, numbers, far) for far in ends]
        found += [_try(part, item, late, far) for late in numbers.ways_of_misses() for far in ends]
    except NotMeasuredError as missing:
        unknown = np.full(numbers.draws, _UNKNOWN)
        return Item(part["name"], optimizers, {}, NOT_MEASURED, str(missing)), unknown
    every = np.stack([codes for _, codes in found])
    codes = np.where((every == every[0]).all(axis=0), every[0], _UNKNOWN)
    values = {name: _value([quantities[name] for quantities, _ in found], numbers.seeds) for name in found[0][0]}
    words = "a seed missed its target" if numbers.rests_on_a_miss else "a critical batch size is a bound only"
    shared = numbers.same_runs()
    noted = f"the same runs: {', '.join(shared)}" if shared else ""
    reason = words if codes[0] == _UNKNOWN else noted
    cells = tuple(sorted(numbers.used))
    verdict, sureness = _VERDICTS[int(codes[0])], _sureness(codes, numbers.seeds)
    warnings, assumed = tuple(numbers.warnings()), rests_on_rates(part)
    return Item(part["name"], optimizers, values, verdict, reason, cells, sureness, warnings, assumed), codes


def rests_on_rates(part: Mapping[str, Any]) -> bool:
    """Whether a part is about chosen learning rates, which have no seeds: how they scatter was assumed."""
    return any("rate" in names_in(formula) for formula in part["quantities"].values())


def _value(ways: Sequence[FloatArray], seeds: int) -> Value:
    return Value(float(ways[0][0]), *widest(ways, seeds))


def _try(
    part: Mapping[str, Any], item: Mapping[str, str], numbers: Numbers, far: Sequence[str]
) -> tuple[dict[str, FloatArray], Codes]:
    names = {**numbers.names(far), **item}
    quantities = {name: np.asarray(evaluate(formula, names)) for name, formula in part["quantities"].items()}
    holds, limit = (np.asarray(evaluate(part[name], {**names, **quantities})) for name in ("holds", "limit"))
    codes = np.where(holds, _HOLDS, np.where(limit, _LIMIT, _FAILS))
    unknown = np.any([np.isnan(array) for array in quantities.values()], axis=0)
    return quantities, np.where(unknown, _UNKNOWN, codes)


def part_codes(items: Sequence[Codes], draws: int) -> Codes:
    """Holds where all items do, fails where fewer than half hold at least with a limit.

    >>> part_codes([np.array([2, 2, 1]), np.array([2, 0, 0]), np.array([2, 2, 0])], 3).tolist()
    [2, 1, 0]
    """
    codes = np.array(items, dtype=np.int64).reshape(len(items), draws)
    measured = (codes != _UNKNOWN).sum(axis=0)
    fails = 2 * (codes >= _LIMIT).sum(axis=0) < measured
    return _summary(codes, measured, fails)


def claim_codes(parts: Sequence[Codes], draws: int) -> Codes:
    """Holds where all parts do, fails where more than half of them fail.

    >>> claim_codes([np.array([2, 2, 0]), np.array([2, 0, 0]), np.array([2, 2, -1])], 3).tolist()
    [2, 1, 0]
    """
    codes = np.array(parts, dtype=np.int64).reshape(len(parts), draws)
    measured = (codes != _UNKNOWN).sum(axis=0)
    return _summary(codes, measured, 2 * (codes == _FAILS).sum(axis=0) > measured)


def _summary(codes: Codes, measured: Codes, fails: npt.NDArray[np.bool_]) -> Codes:
    holds = (codes == _HOLDS).sum(axis=0) == measured
    summary: Codes = np.select([measured == 0, holds, fails], [_UNKNOWN, _HOLDS, _FAILS], _LIMIT)
    return summary
