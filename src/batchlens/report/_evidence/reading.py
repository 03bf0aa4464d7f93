"""An evidence folder: what was declared, what has been measured of it, and the claims.

Sweeps are NAME.sqlite; what was measured of curvature is curvature/WORKLOAD.json; what one run predicted of a sweep is
predictions/NAME.json, a document as `batchlens predict --json` prints it; likely reasons of what contradicts the theory
and footnotes are in remarks.toml, where there is one, and what came out when runs were repeated in verified.json.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from batchlens.curvature.measurement import Measurement, read_measurement
from batchlens.errors import BatchlensError
from batchlens.report._curvature.claims import judge_measurement
from batchlens.report._evidence.contradictions import Contradiction, find_contradictions
from batchlens.report._evidence.judging import Item, JudgedClaim, Judgement, judge_claim
from batchlens.report._evidence.numbers import Numbers
from batchlens.sweep.results import SweepResult, read_sweep

DECLARATIONS, CLAIMS, REMARKS, VERIFIED = "declarations.toml", "claims.toml", "remarks.toml", "verified.json"


@dataclass(frozen=True)
class Declared:
    """A sweep that was declared; `result` is None where none of it has been run."""

    name: str
    workload: str
    optional: bool
    core_hours: float  # as expected
    result: SweepResult | None
    again: str = ""  # the sweep that it repeats with other seeds

    @property
    def begun(self) -> bool:
        """Whether some cell is complete."""
        return self.result is not None and self.result.cells_done > 0

    @property
    def state(self) -> str:
        """How far it is, in words."""
        if self.result is None:
            return "not run"
        done, cells = self.result.cells_done, len(self.result.cells)
        return "complete" if done == cells else f"{done} of {cells} cells"


@dataclass(frozen=True)
class Evidence:
    """What an evidence folder holds."""

    folder: Path
    sweeps: tuple[Declared, ...]
    document: Mapping[str, Any]
    curvature: tuple[Measurement, ...] = ()
    predictions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    remarks: tuple[Mapping[str, Any], ...] = ()
    footnotes: tuple[Mapping[str, Any], ...] = ()  # to critical batch sizes
    verified: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of a sweep, how runs of it came out again

    @property
    def measured(self) -> dict[str, SweepResult]:
        """The sweeps that have at least one complete cell, by name; without repeats."""
        return {sweep.name: sweep.result for sweep in self.sweeps if sweep.result and sweep.begun and not sweep.again}

    @property
    def repeats(self) -> dict[str, SweepResult]:
        """The same of sweeps that repeat another one, by the name of that."""
        return {sweep.again: sweep.result for sweep in self.sweeps if sweep.result and sweep.begun and sweep.again}

    @cached_property
    def numbers(self) -> dict[str, Numbers]:
        """What verdicts on the sweeps are made of, by name."""
        return {name: Numbers(result) for name, result in self.measured.items()}

    @cached_property
    def numbers_again(self) -> dict[str, Numbers]:
        """The same of sweeps that repeat another one, by the name of that."""
        return {name: Numbers(result) for name, result in self.repeats.items()}

    @cached_property
    def claims(self) -> tuple[JudgedClaim, ...]:
        """Every claim, judged."""
        claims = [judge_claim(claim, self.numbers, self.numbers_again) for claim in self.document["claims"]]
        return tuple(
            claim if claim.parts else replace(claim, judgements=self._on_curvature(claim.name)) for claim in claims
        )

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """What fails, with what was tested and the likely reason."""
        return tuple(find_contradictions(self.claims, self.measured, self.remarks))

    def _on_curvature(self, name: str) -> tuple[Judgement, ...]:
        """A claim about curvature, whose thresholds are those of `report._curvature.claims`."""
        places = {sweep.workload: sweep.name for sweep in reversed(self.sweeps)}
        return tuple(
            Judgement(
                places.get(measurement.name, measurement.name),
                claim.verdict,
                None,
                (),
                (Item(name, (), {}, claim.verdict, claim.found),),
            )
            for measurement in self.curvature
            for claim in judge_measurement(measurement)
            if claim.name == f"{measurement.name} {name}"
        )


def read_evidence(folder: Path) -> Evidence:
    """Reads declarations, claims and stores; needs no torch."""
    documents = {name: _read_toml(folder / name) for name in (DECLARATIONS, CLAIMS)}
    sweeps = tuple(
        Declared(
            name=sweep["name"],
            workload=sweep["workload"],
            optional=sweep.get("if_time_is_left", False),
            core_hours=float(sweep["core_hours"]),
            result=read_sweep(store) if (store := folder / f"{sweep['name']}.sqlite").exists() else None,
            again=sweep.get("again", ""),
        )
        for sweep in documents[DECLARATIONS]["sweeps"]
    )
    curvature = tuple(map(read_measurement, sorted((folder / "curvature").glob("*.json"))))
    predictions = {path.stem: _read_json(path) for path in sorted((folder / "predictions").glob("*.json"))}
    remarks = _read_toml(folder / REMARKS) if (folder / REMARKS).exists() else {}
    verified = _read_json(folder / VERIFIED) if (folder / VERIFIED).exists() else {}
    return Evidence(
        folder=folder,
        sweeps=sweeps,
        document=documents[CLAIMS],
        curvature=curvature,
        predictions=predictions,
        remarks=tuple(remarks.get("remarks", ())),
        footnotes=tuple(remarks.get("footnotes", ())),
        verified=verified,
    )


def _read_toml(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BatchlensError(f"{path} cannot be read: {error}") from None


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BatchlensError(f"{path} cannot be read: {error}") from None
    return document
