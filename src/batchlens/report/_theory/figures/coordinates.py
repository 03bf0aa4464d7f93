"""What happens to single coordinates: figures 1, 2 and 8."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from batchlens._drawing import BLUE, PALETTE, RED, Line, draw_lines, positive
from batchlens.report._page.numbers import frame_of, groups
from batchlens.report._theory.study import Study
from batchlens.theory.closed_forms import momentum_bound, sgd_risk
from batchlens.theory.dynamics import convergence_rate, risk, risk_path, steady_state_risk
from batchlens.theory.problem import NoisyQuadratic
from batchlens.theory.rule import UpdateRule

# Figures 2 and 8 of the paper's text look at one coordinate with this alpha h.
_RATE = 0.0005
_STEP_COUNTS = (30, 100, 300, 1_000)


def coordinate_data(study: Study) -> pd.DataFrame:
    """Risk of the stiffest, a middle and the flattest coordinate over time, at a constant rate and with decay.

    At the smallest batch size; constant is tuned SGD, decay the optimal schedule.
    """
    batch_size = study.batch_sizes[0]
    plan = study.schedule(batch_size)
    settings = study.curve("sgd", 0.0).settings[0]
    rule = UpdateRule(settings["learning_rate"])
    ends = np.concatenate([[0], np.cumsum(plan.lengths)])
    times = np.unique(np.concatenate([ends, np.geomspace(1, plan.steps, 60).astype(np.int64)]))
    pieces = np.searchsorted(ends, times[1:], side="left") - 1
    rules = [UpdateRule(plan.learning_rates[piece]) for piece in pieces]
    rows = []
    h = study.problem.curvature
    for name, i in (("stiffest", int(np.argmax(h))), ("middle", _middle(h)), ("flattest", int(np.argmin(h)))):
        one = NoisyQuadratic(h[[i]], study.problem.noise[[i]], study.problem.initial[[i]])
        decay = np.concatenate([[one.initial_risk], risk_path(one, rules, batch_size, np.diff(times))])
        for kind, values in (("constant", risk(one, rule, batch_size, times)), ("decay", decay)):
            rows += [
                {"coordinate": name, "curvature": h[i], "kind": kind, "step": int(step), "risk": float(value)}
                for step, value in zip(times, values, strict=True)
            ]
    return frame_of(rows)


def _middle(h: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
    """The coordinate in the middle of the spectrum's logarithmic range."""
    return int(np.argmin(np.abs(np.log(h / np.sqrt(h.max() * h.min())))))


def draw_coordinates(ax: Axes, data: pd.DataFrame) -> None:
    """Risk of each coordinate over time: solid with decay, dashed at a constant rate."""
    colours = dict(zip(("stiffest", "middle", "flattest"), PALETTE, strict=False))
    lines = []
    for (name, kind), part in groups(data, "coordinate", "kind"):
        label = f"{name}, {'decay' if kind == 'decay' else 'constant'}"
        lines.append(Line(part["step"] + 1, part["risk"], label, colours[name], "-" if kind == "decay" else "--"))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(1, data["step"].max() + 1)
    ax.set_xlabel("step + 1")
    ax.set_ylabel("risk of one coordinate")
    _fit_height(ax, data["risk"])
    draw_lines(ax, lines)
    ax.set_title("solid: optimal schedule; dashed: best constant rate", fontsize=10, loc="left")


def momentum_data() -> pd.DataFrame:
    """Convergence rate and steady-state risk of one coordinate against momentum, alpha h = 0.0005, batch size 1."""
    one = NoisyQuadratic([1.0], [1.0], [1.0])
    rows = []
    for gap in np.geomspace(1e-4, 1.0, 81):
        momentum = 1.0 - gap
        rule = UpdateRule(_RATE, momentum)
        effective = _RATE / gap
        stable = effective < 2.0
        rows.append(
            {
                "momentum": momentum,
                "gap": gap,
                "convergence": 1.0 - convergence_rate(one, rule),
                "effective": 1.0 - abs(1.0 - effective) if stable else None,
                "steady_state": steady_state_risk(one, rule, 1),
                "steady_state_plain": steady_state_risk(one, UpdateRule(effective), 1) if stable else None,
            }
        )
    return frame_of(rows)


def draw_momentum_rate(ax: Axes, data: pd.DataFrame) -> None:
    """1 - convergence rate against 1 - momentum, beside alpha h / (1 - momentum)."""
    lines = [
        Line(data["gap"], data["convergence"], "momentum", RED),
        Line(data["gap"], data["effective"], "SGD, effective rate", BLUE, "--"),
    ]
    _momentum_axes(ax, "1 - convergence rate")
    _fit_height(ax, data["convergence"])
    draw_lines(ax, lines)


def draw_momentum_steady_state(ax: Axes, data: pd.DataFrame) -> None:
    """Steady-state risk against 1 - momentum, beside that of SGD at the effective learning rate."""
    lines = [
        Line(data["gap"], data["steady_state"], "momentum", RED),
        Line(data["gap"], data["steady_state_plain"], "SGD, effective rate", BLUE, "--"),
    ]
    _momentum_axes(ax, "steady-state risk")
    _fit_height(ax, data["steady_state"])
    draw_lines(ax, lines)


def first_term_data() -> pd.DataFrame:
    """The first term of theorem 1 and that of SGD at the effective rate, over the initial risk, for several times."""
    one = NoisyQuadratic([1.0], [0.0], [1.0])
    rows = []
    for gap in np.geomspace(2e-3, 1.0, 81):
        momentum = momentum_bound(one, _RATE, 1.0 - gap, 1, _STEP_COUNTS).deterministic
        plain = sgd_risk(one, _RATE / gap, 1, _STEP_COUNTS).deterministic
        rows += [
            {"gap": gap, "steps": steps, "momentum": 2.0 * float(m), "sgd": 2.0 * float(p)}
            for steps, m, p in zip(_STEP_COUNTS, momentum, plain, strict=True)
        ]
    return frame_of(rows)


def draw_first_term(ax: Axes, data: pd.DataFrame) -> None:
    """First term against 1 - momentum: solid for momentum, dashed for SGD at the effective rate."""
    lines = []
    for i, ((steps,), part) in enumerate(groups(data, "steps")):
        lines.append(Line(part["gap"], part["momentum"], f"{steps:,} steps", PALETTE[i % len(PALETTE)]))
        lines.append(Line(part["gap"], part["sgd"], "", PALETTE[i % len(PALETTE)], "--"))
    _momentum_axes(ax, "first term, over its initial value")
    ax.set_yscale("linear")
    ax.set_ylim(-0.03, 1.05)
    draw_lines(ax, lines)
    ax.set_title("solid: momentum; dashed: SGD at the effective rate", fontsize=10, loc="left")


def _momentum_axes(ax: Axes, label: str) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("1 - momentum")
    ax.set_ylabel(label)


def _fit_height(ax: Axes, values: "pd.Series[float]") -> None:
    shown = positive(values)
    low, high = min(shown), max(shown)
    ax.set_ylim(max(low, high * 1e-12) / 1.6, high * 1.6)
