"""How large a batch can a training use, and which optimizer and learning rate go with it?

Public names are loaded on first use (scientific Python's SPEC 1): `import batchlens` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchlens.advice.plan import Plan, plan
    from batchlens.advice.timing import StepTimes, time_steps
    from batchlens.advice.transfer import Transfer, transfer
    from batchlens.curvature.measurement import Measurement, Moment, read_measurement
    from batchlens.curvature.measuring import measure
    from batchlens.curvature.tracking import measure_training
    from batchlens.errors import BatchlensError
    from batchlens.explorer.exploring import Explorer, explore, export_explorer
    from batchlens.kfac import KFAC
    from batchlens.monitor.monitor import Monitor
    from batchlens.monitor.noise_estimate import NoiseEstimate
    from batchlens.monitor.noise_scale import NoiseScale
    from batchlens.prediction.predicting import predict
    from batchlens.prediction.prediction import PredictedBatchSize, PredictedCurve, Prediction, predict_from
    from batchlens.report.reproduction import Reproduction, reproduce
    from batchlens.report.writing import write_report
    from batchlens.scaling.curve import CriticalBatchSize, ScalingCurve, critical_batch_size
    from batchlens.scaling.fitting import Fit, FittedRuns, fit
    from batchlens.sweep.merging import merge_sweeps
    from batchlens.sweep.results import SweepResult, read_sweep
    from batchlens.sweep.running import run_sweep
    from batchlens.theory.batch_schedules import (
        BatchFrontier,
        BatchSchedule,
        batch_frontier,
        best_batch_schedule,
        optimal_batch_schedule,
        tune_batch_ramp,
    )
    from batchlens.theory.bounds import lower_bound_risk, lower_bound_steps
    from batchlens.theory.dynamics import (
        RiskTerms,
        convergence_rate,
        is_stable,
        risk,
        risk_path,
        risk_terms,
        steady_state_risk,
    )
    from batchlens.theory.hitting import HittingTime, hitting_time, steps_to_target
    from batchlens.theory.problem import NoisyQuadratic
    from batchlens.theory.reading import read_problem
    from batchlens.theory.ready_made import ready_made_schedule, tune_ready_made
    from batchlens.theory.rule import UpdateRule
    from batchlens.theory.schedules import Schedule, best_schedule, optimal_schedule
    from batchlens.theory.tuning import BestRisk, Tuned, best_risk, scaling_curve, tune
    from batchlens.training.data.loading import Dataset, Split
    from batchlens.training.loop import train
    from batchlens.training.recipes import Recipe
    from batchlens.training.record import Record
    from batchlens.training.spaces import Range, search_spaces
    from batchlens.training.workloads import Workload, find_workload

__version__ = "0.2.0"

__all__ = [
    "KFAC",
    "BatchFrontier",
    "BatchSchedule",
    "BatchlensError",
    "BestRisk",
    "CriticalBatchSize",
    "Dataset",
    "Explorer",
    "Fit",
    "FittedRuns",
    "HittingTime",
    "Measurement",
    "Moment",
    "Monitor",
    "NoiseEstimate",
    "NoiseScale",
    "NoisyQuadratic",
    "Plan",
    "PredictedBatchSize",
    "PredictedCurve",
    "Prediction",
    "Range",
    "Recipe",
    "Record",
    "Reproduction",
    "RiskTerms",
    "ScalingCurve",
    "Schedule",
    "Split",
    "StepTimes",
    "SweepResult",
    "Transfer",
    "Tuned",
    "UpdateRule",
    "Workload",
    "__version__",
    "batch_frontier",
    "best_batch_schedule",
    "best_risk",
    "best_schedule",
    "convergence_rate",
    "critical_batch_size",
    "explore",
    "export_explorer",
    "find_workload",
    "fit",
    "hitting_time",
    "is_stable",
    "lower_bound_risk",
    "lower_bound_steps",
    "measure",
    "measure_training",
    "merge_sweeps",
    "optimal_batch_schedule",
    "optimal_schedule",
    "plan",
    "predict",
    "predict_from",
    "read_measurement",
    "read_problem",
    "read_sweep",
    "ready_made_schedule",
    "reproduce",
    "risk",
    "risk_path",
    "risk_terms",
    "run_sweep",
    "scaling_curve",
    "search_spaces",
    "steady_state_risk",
    "steps_to_target",
    "time_steps",
    "train",
    "transfer",
    "tune",
    "tune_batch_ramp",
    "tune_ready_made",
    "write_report",
]

_NAMES_BY_MODULE = {
    "advice.plan": ["Plan", "plan"],
    "advice.timing": ["StepTimes", "time_steps"],
    "advice.transfer": ["Transfer", "transfer"],
    "errors": ["BatchlensError"],
    "scaling.curve": ["CriticalBatchSize", "ScalingCurve", "critical_batch_size"],
    "scaling.fitting": ["Fit", "FittedRuns", "fit"],
    "theory.batch_schedules": [
        "BatchFrontier",
        "BatchSchedule",
        "batch_frontier",
        "best_batch_schedule",
        "optimal_batch_schedule",
        "tune_batch_ramp",
    ],
    "theory.bounds": ["lower_bound_risk", "lower_bound_steps"],
    "theory.dynamics": [
        "RiskTerms",
        "convergence_rate",
        "is_stable",
        "risk",
        "risk_path",
        "risk_terms",
        "steady_state_risk",
    ],
    "theory.hitting": ["HittingTime", "hitting_time", "steps_to_target"],
    "theory.problem": ["NoisyQuadratic"],
    "theory.reading": ["read_problem"],
    "theory.ready_made": ["ready_made_schedule", "tune_ready_made"],
    "theory.rule": ["UpdateRule"],
    "theory.schedules": ["Schedule", "best_schedule", "optimal_schedule"],
    "theory.tuning": ["BestRisk", "Tuned", "best_risk", "scaling_curve", "tune"],
    "explorer.exploring": ["Explorer", "explore", "export_explorer"],
    "kfac": ["KFAC"],
    "curvature.measurement": ["Measurement", "Moment", "read_measurement"],
    "curvature.measuring": ["measure"],
    "curvature.tracking": ["measure_training"],
    "monitor.monitor": ["Monitor"],
    "monitor.noise_estimate": ["NoiseEstimate"],
    "monitor.noise_scale": ["NoiseScale"],
    "prediction.predicting": ["predict"],
    "prediction.prediction": ["PredictedBatchSize", "PredictedCurve", "Prediction", "predict_from"],
    "report.reproduction": ["Reproduction", "reproduce"],
    "report.writing": ["write_report"],
    "sweep.merging": ["merge_sweeps"],
    "sweep.results": ["SweepResult", "read_sweep"],
    "sweep.running": ["run_sweep"],
    "training.data.loading": ["Dataset", "Split"],
    "training.loop": ["train"],
    "training.recipes": ["Recipe"],
    "training.record": ["Record"],
    "training.spaces": ["Range", "search_spaces"],
    "training.workloads": ["Workload", "find_workload"],
}
_MODULE_OF = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}


if not TYPE_CHECKING:  # a type checker that saw this would accept misspelt names

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = import_module(f"{__name__}.{_MODULE_OF[name]}")
        except ImportError as error:
            from batchlens._extras import missing

            raise missing(error, name) from None
        value = globals()[name] = getattr(module, name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
