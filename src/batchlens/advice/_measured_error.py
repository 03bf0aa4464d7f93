"""What is known of a rule's error: on random noisy quadratics, and on published runs.

`transfer_rules.json` is written by benchmarks/transfer_rules.py, which says what was drawn and how: spectra i^-a with
a from 0.75 to 1.25 ("near") and from 0.5 to 1.5 ("wide").  The figures of language models are of 1,911 dense and 708
mixture-of-experts runs (AdamW, the other settings not rescaled).
"""

import json
from functools import cache
from importlib.resources import files
from itertools import takewhile
from typing import Any

_PUBLISHED = {
    "linear": "off 2.8x (median), 9.6x (90%) on 1,911 published LM runs",
    "square_root": "off 1.6x (median), 2.8x (90%) on 1,911 published LM runs; 1.2x, 1.8x on 708 MoE runs",
    "square_root_capped": "within 1.3x (median), 1.8x (90%) on 2,619 published LM runs",
    "square_root_saturating": "off up to 1.9x (90%) on 1,911 published LM runs, where the hard cap is off up to 1.6x",
}
NOT_MEASURED = "not measured here"


def published_error(rule: str) -> str:
    """What published language-model runs say of a learning-rate rule under AdamW."""
    return _PUBLISHED.get(rule, NOT_MEASURED)


@cache
def _entries() -> list[dict[str, Any]]:
    text = (files("batchlens.advice") / "transfer_rules.json").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = json.loads(text)["entries"]
    return entries


def model_error(rule: str, b0: float, b1: float, critical: float) -> str:
    """Steps lost on random noisy quadratics, of wide spectra, by a move like this one."""
    entry = _nearest(rule, "up" if b1 >= b0 else "down", max(b0, b1) / critical)
    if entry is None:
        return NOT_MEASURED
    lost = "more than 20 times the steps" if entry["most"] is None else f"{entry['most']:.1%} more steps"
    never = f"; {entry['never']:.0%} never arrive" if entry["never"] else ""
    return f"at most {lost} in 95% of 200 random quadratics{never}, up to {_part(entry['part'])} B_crit"


def _nearest(rule: str, direction: str, part: float) -> dict[str, Any] | None:
    """The first entry that reaches as far; the farthest where none does; None where the rule was not measured."""
    known = _of(rule, direction, "wide")
    far = (entry for entry in known if part <= entry["part"] * (1 + 1e-9))
    return next(far, known[-1] if known else None)


def _of(rule: str, direction: str, spectra: str) -> list[dict[str, Any]]:
    wanted = rule, direction, spectra
    return [entry for entry in _entries() if (entry["rule"], entry["direction"], entry["spectra"]) == wanted]


def _part(part: float) -> str:
    return f"{part:g}" if part >= 1 else f"1/{round(1 / part)}"


def model_reach(rule: str) -> str:
    """How far a rule can be trusted on the random problems."""
    if not _of(rule, "up", "near"):
        return NOT_MEASURED
    part = reach_of(rule)
    if part is None:
        return "over 5% more steps at every batch size looked at"
    return f"at most 5% more steps in 95% of 200 random quadratics near 1/i, up to {_part(part)} B_crit"


def reach_of(rule: str) -> float | None:
    """The last part of B_crit, counted upwards, at which a rule loses at most 5% in 95% of problems near 1/i."""
    good = takewhile(lambda entry: entry["most"] is not None and entry["most"] <= 0.05, _of(rule, "up", "near"))
    return max((entry["part"] for entry in good), default=None)
