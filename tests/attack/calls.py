"""Every door of the library, called with what nobody should pass."""

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import torch

import batchlens as bl
from batchlens.training.workloads import find_workload
from tests.attack import hostile

ALLOWED = (ValueError, TypeError, bl.BatchlensError)
# Where a larger number is a longer wait, and no mistake.
PATIENT = {"max_steps", "repeats", "resamples", "steps", "pieces", "lengths", "dim", "bins", "workers"}

Call = tuple[Callable[..., Any], dict[str, Any]]


def doors(folder: Path) -> dict[str, Call]:
    """How each is called well, with little to do."""
    problem = bl.NoisyQuadratic.power_law(dim=30)
    rule = bl.UpdateRule(learning_rate=0.1, momentum=0.9)
    digits = replace(find_workload("digits"), name="here", target=0.5)
    curve: dict[str, Any] = {"batch_sizes": [4, 16, 64], "steps": [100, 30, 20]}
    model = torch.nn.Linear(3, 2)
    images, labels = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    store = folder / "store.sqlite"
    theory: dict[str, dict[str, Any]] = {
        "best_risk": {"family": "momentum", "batch_size": 8, "steps": 50},
        "best_schedule": {"batch_size": 8, "steps": 50, "pieces": 3},
        "convergence_rate": {"rule": rule},
        "hitting_time": {"rule": rule, "batch_size": 8, "target": 0.5, "max_steps": 1000},
        "is_stable": {"rule": rule},
        "lower_bound_risk": {"examples": 100},
        "lower_bound_steps": {"batch_size": 8, "target": 0.5},
        "optimal_schedule": {"batch_size": 8, "target": 0.5, "pieces": 3},
        "ready_made_schedule": {"shape": "cosine", "batch_size": 8, "steps": 50},
        "risk": {"rule": rule, "batch_size": 8, "steps": [0, 10]},
        "risk_path": {"rules": rule, "batch_size": 8, "lengths": [3, 4]},
        "risk_terms": {"rule": rule, "batch_size": 8, "steps": [0, 10]},
        "scaling_curve": {"family": rule, "batch_sizes": [4, 16], "target": 0.5},
        "steady_state_risk": {"rule": rule, "batch_size": 8},
        "steps_to_target": {"rule": rule, "batch_size": 8, "target": 0.5, "max_steps": 1000},
        "tune": {"family": "sgd", "batch_size": 8, "target": 0.5},
        "tune_ready_made": {"shape": "linear_decay", "batch_size": 8, "target": 0.5},
    }
    calls: dict[str, Call] = {
        name: (getattr(bl, name), {"problem": problem, **given}) for name, given in theory.items()
    }
    split = bl.Split(images, labels)
    calls |= {
        "KFAC": (bl.KFAC, {"model": model, "lr": 0.1, "momentum": 0.9, "damping": 0.01, "seed": 0}),
        "Dataset": (bl.Dataset, {"name": "a", "train": split, "validation": split, "classes": 2}),
        "NoisyQuadratic": (bl.NoisyQuadratic, {"curvature": [1, 0.5], "noise": [1, 1], "initial": [1, 1]}),
        "power_law": (bl.NoisyQuadratic.power_law, {"dim": 10, "exponent": 1.0}),
        "binned": (problem.binned, {"bins": 5}),
        "Range": (bl.Range, {"low": 0.1, "high": 1.0, "scale": "log"}),
        "ScalingCurve": (bl.ScalingCurve, {**curve, "optimizer": "sgd", "target": 0.5}),
        "Schedule": (partial(bl.Schedule, risk=0.1), {"learning_rates": [0.1], "lengths": [3]}),
        "Split": (bl.Split, {"inputs": images, "targets": labels}),
        "Workload": (
            partial(replace, digits),
            {"name": "here", "data": digits.data, "model": digits.model, "loss": digits.loss, "target": 0.5,
             "train_target": 0.5, "micro_batch": 8, "max_examples": 100, "min_steps": 1, "batch_sizes": (8,),
             "trials": 1, "size": "laptop", "schedule": "constant", "evaluation_examples": 10, "slice_multiple": 1},
        ),
        "UpdateRule": (bl.UpdateRule, {"learning_rate": 0.1, "momentum": 0.9, "averaging": 0.5, "power": 0.5}),
        "critical_batch_size": (bl.critical_batch_size, {**curve, "definition": "knee", "tolerance": 0.2}),
        "find_workload": (bl.find_workload, {"name": "digits", "size": "laptop"}),
        "fit": (bl.fit, {"runs": bl.ScalingCurve(**curve), "predict": [8], "resamples": 100, "seed": 0}),
        "fit logs": (
            bl.fit,
            {"runs": _records(folder), "metric": "loss", "target": 0.5, "direction": "down", "smoothing": 0.1,
             "batch_size_from": r"b(\d+)", "several": "best"},
        ),
        "merge_sweeps": (bl.merge_sweeps, {"out": folder / "out.sqlite", "inputs": [store]}),
        "read_sweep": (bl.read_sweep, {"path": store}),
        "run_sweep": (
            bl.run_sweep,
            {"workload": digits, "optimizers": ["sgd"], "batch_sizes": [64], "trials": 1, "max_steps": 2, "keep": 1,
             "store": folder / "swept.sqlite", "seed": 0, "target": 0.5, "target_on": "validation", "size": "laptop",
             "spaces": None, "pruning": True, "extend": False, "search": "guided", "seeds": 1, "also_targets": (),
             "confirm_target": False, "precision": None, "time_budget": None, "repeats": 0,
             "retry_failed": False, "take_over": False, "workers": None, "cpus": 1, "gpus": 0,
             "shard": None, "device": None, "data_dir": None, "watch": None},
        ),
        "search_spaces": (bl.search_spaces, {"sgd": bl.Range(0.1, 1), "decay": None}),
        "train": (
            bl.train,
            {"workload": digits, "optimizer": "sgd", "batch_size": 64, "settings": {"learning_rate": 0.1},
             "max_steps": 2, "seed": 0, "target": 0.5, "target_on": "validation", "micro_batch": 64,
             "schedule": "constant", "lazy": True, "device": "cpu", "threads": 1, "checkpoint": None, "data_dir": None,
             "watch": None, "stop": None},
        ),
        "write_report": (bl.write_report, {"path": store, "out": folder / "page"}),
    }  # fmt: skip
    return calls


def _records(folder: Path) -> Path:
    path = folder / "b8.csv"
    path.write_text("step,loss\n1,1\n2,0\n", encoding="utf-8")
    return path


def attempt(random: Random, calls: dict[str, Call]) -> tuple[str, Callable[[], str]]:
    """A call in words, and what makes it: it answers with what broke, if anything did."""
    name = random.choice(list(calls))
    function, well = calls[name]
    changed = {key: _bad(random, key) for key in random.sample(list(well), min(random.choice([1, 1, 1, 2]), len(well)))}
    words = ", ".join(f"{key}={str(entry)[:60]!r}" for key, entry in changed.items())

    def call() -> str:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                repr(function(**{**well, **changed}))
        except ALLOWED as error:
            return "" if str(error) else f"{type(error).__name__} without a word"
        except BaseException as error:
            return f"{type(error).__name__}: {error}"[:300]
        return ""

    return f"{name}({words})", call


def _bad(random: Random, key: str) -> Any:
    value = hostile.value(random)
    while key in PATIENT and isinstance(value, int | float) and value > 1 and math.isfinite(float(min(value, 10**9))):
        value = hostile.value(random)
    return value
