"""Settings at another batch size: the rules against the theory and cited numbers, their ranges, and bad input."""

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import batchlens as bl
from batchlens.advice._carrying import Carrier, critical_of, rate_cap, steps_lost
from batchlens.advice._moves import Move, check_settings, known_settings
from batchlens.advice._rules import RATE_RULES, default_rule, power
from batchlens.optimizers import OPTIMIZERS
from tests.reference import monte_carlo_adamw

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "transfer_rules.py"
VALUES = {
    "learning_rate": 3e-3,
    "momentum": 0.9,
    "beta1": 0.9,
    "beta2": 0.99,
    "epsilon": 1e-8,
    "weight_decay": 0.1,
    "averaging": 0.999,
    "warmup_steps": 200.0,
    "decay_steps": 5000.0,
    "steps": 10_000.0,
}
BASES = sorted(OPTIMIZERS)
SIZES = st.floats(1.0, 1e6)
KAPPAS = st.floats(math.log(1 / 1024), math.log(1024)).map(math.exp)
QUICK = settings(derandomize=True, deadline=None, max_examples=200)


def load_benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("transfer_rules", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def paper() -> bl.NoisyQuadratic:
    return bl.NoisyQuadratic.power_law(dim=10_000).binned(100)


def move(optimizer: str, values: dict[str, float], b0: float, b1: float, critical: float | None) -> dict[str, float]:
    """The new values by the default rule, without the theory."""
    checked = check_settings(optimizer, values)
    rule = default_rule(OPTIMIZERS[optimizer].power == 0.5, critical)
    asked = Move(optimizer, checked, b0, b1, critical, rule, None)
    return {name: asked.settle(name, None).after for name in checked}


def all_settings(optimizer: str) -> dict[str, float]:
    return {name: VALUES[name] for name in known_settings(optimizer)}


@QUICK
@given(st.sampled_from(BASES), SIZES, KAPPAS, st.none() | SIZES)
def test_there_and_back_again_is_the_identity(optimizer: str, b0: float, kappa: float, critical: float | None) -> None:
    before = all_settings(optimizer)
    there = move(optimizer, before, b0, kappa * b0, critical)
    again = move(optimizer, there, kappa * b0, b0, critical)
    for name, value in before.items():
        assert again[name] == pytest.approx(value, rel=1e-9), name


@QUICK
@given(st.sampled_from(BASES), SIZES, st.none() | SIZES)
def test_the_same_batch_size_changes_nothing(optimizer: str, size: float, critical: float | None) -> None:
    assert move(optimizer, all_settings(optimizer), size, size, critical) == all_settings(optimizer)


@QUICK
@given(
    st.sampled_from(BASES),
    st.floats(1e-6, 2.0**62),
    st.floats(1e-6, 2.0**62),
    st.none() | st.floats(1e-6, 1e18),
    st.floats(0.0, math.nextafter(1.0, 0.0)),
)
def test_nothing_leaves_its_range(
    optimizer: str, b0: float, b1: float, critical: float | None, coefficient: float
) -> None:
    values = all_settings(optimizer)
    values |= {name: coefficient for name in ("momentum", "beta1", "beta2", "averaging") if name in values}
    after = move(optimizer, values, b0, b1, critical)
    assert check_settings(optimizer, after) == after


def test_the_theory_is_the_identity_where_nothing_changes() -> None:
    moved = bl.transfer(VALUES | {}, "muon", 256, 256, 1000)
    assert [(entry.after, entry.theory) for entry in moved.settings] == [(VALUES[e.name],) * 2 for e in moved.settings]
    assert (moved.steps_ratio, moved.ways) == (1.0, ())


def test_adams_root_rule_is_capped_at_the_critical_batch_size() -> None:
    moved = bl.transfer({"learning_rate": 3e-4}, "adamw", 256, 4096, 1000)
    assert moved["learning_rate"] == pytest.approx(3e-4 * math.sqrt(1000 / 256))
    assert "1.3x" in moved.settings[0].error
    assert "1.8x" in moved.settings[0].error
    free = bl.transfer({"learning_rate": 3e-4}, "adamw", 256, 4096)
    assert free["learning_rate"] == pytest.approx(3e-4 * 4)
    assert "critical batch size is not known" in free.warnings[0]


def test_sgds_rule_is_linear_below_and_constant_above_the_critical_batch_size() -> None:
    below, above = (bl.transfer({"learning_rate": 0.1}, "sgd", low, high, 1e6) for low, high in ((1, 100), (1e9, 1e11)))
    assert below["learning_rate"] == pytest.approx(10.0, rel=2e-4)
    assert above["learning_rate"] == pytest.approx(0.1, rel=2e-3)


@pytest.mark.parametrize("name", ["saturating", "square_root_saturating"])
def test_saturating_rules_are_the_best_rates_of_one_step(name: str) -> None:
    """McCandlish 2018: SGD's best rate is eta_max / (1 + B_crit / B); a gradient over its rms has the root of that."""
    curvature, slope, noise = 0.7, 1.3, 40.0  # one coordinate, B_crit = noise / slope^2

    def best_rate(size: float) -> float:
        square = slope**2 + noise / size  # E[g^2]
        unit = 1.0 if name == "saturating" else math.sqrt(square)

        def change(rate: float) -> float:
            return -rate / unit * slope**2 + curvature / 2 * (rate / unit) ** 2 * square

        return float(minimize_scalar(change, bracket=(1e-3, 1.0), options={"xtol": 1e-9}).x)

    for b0, b1 in ((1.0, 8.0), (16.0, 1024.0), (512.0, 4.0)):
        moved = bl.transfer({"learning_rate": best_rate(b0)}, "sgd", b0, b1, noise / slope**2, rule=name)
        assert moved["learning_rate"] == pytest.approx(best_rate(b1), rel=1e-6)


def test_adams_rules_come_to_the_same_in_as_many_examples() -> None:
    """AdamW itself, simulated where noise is most of the gradient: a 16th of the steps at 16 times the batch."""
    before = {"learning_rate": 0.01, "beta1": 0.998, "beta2": 0.999, "epsilon": 20.0, "weight_decay": 0.02}
    before["steps"] = 3200.0
    moved = bl.transfer(before, "adamw", 4, 64)
    carried = {name: moved[name] for name in before}

    def ends(values: dict[str, float], batch_size: float) -> float:
        return monte_carlo_adamw(1.0, 6400.0, 4.0, values, batch_size, n_repeats=4000, seed=int(batch_size))

    wanted = ends(before, 4)
    assert ends(carried, 64) == pytest.approx(wanted, rel=0.05)
    for name in ("learning_rate", "beta1", "epsilon", "weight_decay"):  # what is left as it was tells
        assert abs(ends(carried | {name: before[name]}, 64) / wanted - 1) > 0.15, name


@pytest.mark.parametrize("optimizer", ["adamw", "momentum"])
def test_weight_decay_keeps_its_timescale_in_examples(optimizer: str) -> None:
    values = {"learning_rate": 3e-4, "weight_decay": 0.1} | ({"momentum": 0.9} if optimizer == "momentum" else {})
    moved = bl.transfer(values, optimizer, 256, 4096, 1000)
    after = {name: moved[name] for name in values}

    def of_an_example(settings: dict[str, float], size: float) -> float:
        return settings["learning_rate"] / (1 - settings.get("momentum", 0.0)) * settings["weight_decay"] / size

    assert of_an_example(after, 4096) == pytest.approx(of_an_example(values, 256))


def test_beta2_goes_by_its_half_life_as_published() -> None:
    moved = bl.transfer({"beta2": 0.95}, "adam", 512, 1)
    assert moved["beta2"] == pytest.approx(0.9999, abs=5e-6)  # Marek 2025: 0.95 at 512 is 0.9999 at 1
    assert power(0.5, 2.0**62) == 0.0


def test_epsilon_keeps_its_part_of_the_root_of_second_moments() -> None:
    random = np.random.default_rng(0)
    noise, signal = 3.0, 0.2  # B_crit of |G|^2 (1 + B_crit / B) is noise / signal^2
    sizes, critical = (4, 64), noise / signal**2
    roots = [math.sqrt(np.mean((signal + random.normal(0, math.sqrt(noise / size), 400_000)) ** 2)) for size in sizes]
    moved = bl.transfer({"epsilon": 1e-8}, "adam", sizes[0], sizes[1], critical)
    assert moved["epsilon"] / 1e-8 == pytest.approx(roots[1] / roots[0], rel=0.01)


def test_steps_follow_the_hyperbola_and_schedules_the_examples() -> None:
    values = {"steps": 1000.0, "decay_steps": 1000.0, "warmup_steps": 100.0}
    moved = bl.transfer(values, "sgd", 100, 400, 100)
    assert moved["steps"] == moved["decay_steps"] == pytest.approx(1000 * 1.25 / 2)
    assert moved["warmup_steps"] == 25.0


def test_a_warm_up_of_as_many_examples_comes_to_the_same() -> None:
    """At small rates: a linear warm-up over 1,600 steps, and over 100 at 16 times the batch and the rate."""
    before = {"learning_rate": 1e-4, "warmup_steps": 1600.0}
    moved = bl.transfer(before, "sgd", 1, 16)

    def risk(settings: dict[str, float], size: float, steps: int) -> float:
        warm = round(settings["warmup_steps"])
        rates = [settings["learning_rate"] * min(1.0, (step + 0.5) / warm) for step in range(steps)]
        return float(bl.risk_path(paper(), [bl.UpdateRule(rate) for rate in rates], size, [1] * steps)[-1])

    wanted = risk(before, 1.0, 3200)
    carried = {name: moved[name] for name in before}
    assert risk(carried, 16.0, 200) == pytest.approx(wanted, rel=1e-3)
    assert abs(risk(carried | {"warmup_steps": 1600.0}, 16.0, 200) / wanted - 1) > 0.05


def test_steps_are_within_a_quarter_of_those_that_the_theory_tunes() -> None:
    """On the paper's problem; what `transfer` quotes.  The bend of its curve is sharper than the hyperbola's."""
    problem = paper()
    critical = critical_of(problem, 0.01)
    assert critical is not None
    parts = [1 / 256, 1 / 16, 1.0, 16.0, 256.0]
    tuned = {part: bl.tune(problem, "sgd", part * critical, 0.01).steps or math.nan for part in parts}
    off = []
    for part in parts:
        values = {"steps": float(tuned[part])}
        off += [move("sgd", values, part, other, 1.0)["steps"] / tuned[other] - 1 for other in parts]
    assert 0.2 < max(np.abs(off)) < 0.25
    assert "25% off" in bl.transfer({"steps": 1000.0}, "sgd", 1, 2, 64).settings[0].error


def test_averaging_keeps_its_half_life_and_the_risk_with_it() -> None:
    """At small rates, twice the batch, twice the rate and averaging^2 come to the same in half the steps."""
    problem = paper()
    rule = bl.UpdateRule(1e-4, averaging=0.9999)
    carried = Carrier(RATE_RULES["linear"], math.inf).carry(rule, 1.0, 16.0)
    risks = bl.risk(problem, rule, 1.0, [160_000])[0], bl.risk(problem, carried, 16.0, [10_000])[0]
    assert risks[1] == pytest.approx(risks[0], rel=2e-3)


def test_momentum_keeps_its_half_life_and_the_risk_with_it() -> None:
    problem = paper()
    rule = bl.UpdateRule(1e-6, momentum=0.999)
    carried = Carrier(RATE_RULES["linear"], math.inf).carry(rule, 1.0, 16.0)
    assert carried.momentum == pytest.approx(0.999**16)
    risks = bl.risk(problem, rule, 1.0, [160_000])[0], bl.risk(problem, carried, 16.0, [10_000])[0]
    assert risks[1] == pytest.approx(risks[0], rel=2e-3)


def test_the_theorys_answer_is_what_tune_says_in_units_of_the_critical_batch_size() -> None:
    problem = paper()
    unit = critical_of(problem, 0.01)
    assert unit is not None
    moved = bl.transfer({"learning_rate": 0.1, "steps": 100.0}, "sgd", 100, 800, 1600)
    low, high = (bl.tune(problem, "sgd", unit * size / 1600, 0.01) for size in (100, 800))
    assert low.rule is not None
    assert high.rule is not None
    assert low.steps is not None
    assert high.steps is not None
    ratio = high.rule.learning_rate / low.rule.learning_rate
    assert moved.settings[0].theory == pytest.approx(0.1 * ratio)
    assert moved.settings[1].theory == pytest.approx(100 * high.steps / low.steps)


def test_where_rule_and_theory_part_is_said() -> None:
    near = bl.transfer({"learning_rate": 0.1}, "sgd", 16, 128, 4096)
    far = bl.transfer({"learning_rate": 0.1}, "sgd", 16, 65_536, 4096, rule="linear")
    assert near.theory is not None
    assert near.theory.parts_from is None
    assert far.theory is not None
    assert far.theory.parts_from is not None
    assert 256 <= far.theory.parts_from <= 4096
    assert any("from batch size" in line for line in far.warnings)


def test_a_measured_spectrum_brings_its_critical_batch_size_and_a_cap(tmp_path: Path) -> None:
    spectrum = [{"curvature": 1 / i, "variance": 2 / i, "directions": 3, "rank": 3 * i - 2} for i in range(1, 200)]
    file = tmp_path / "measured.json"
    moment = {"step": 0, "loss": 1.0, "top_curvature": {"value": 1.0}, "spectrum": spectrum}
    file.write_text(json.dumps({"moments": [moment]}), encoding="utf-8")
    moved = bl.transfer({"learning_rate": 0.5}, "sgd", 16, 2**20, measurement=file)
    assert moved["learning_rate"] == 1.5
    assert moved.critical_batch_size is not None
    assert moved.measured
    again = bl.transfer({"learning_rate": 0.5}, "sgd", 16, 2**20, measurement=bl.read_problem(file))
    assert again.as_document() == moved.as_document()


def test_a_spectrum_without_a_critical_batch_size_is_refused_by_name() -> None:
    quiet = bl.NoisyQuadratic([1.0, 0.5], [0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="`measurement` must show a critical batch size"):
        bl.transfer({"learning_rate": 0.1}, "sgd", 8, 64, measurement=quiet)


def test_the_theory_holds_the_momentum_that_muon_has() -> None:
    low, high = (bl.transfer({"learning_rate": 0.1, "momentum": m}, "muon", 64, 512, 1000) for m in (0.5, 0.98))
    assert low.settings[0].theory != high.settings[0].theory


def test_ways_to_get_there_are_in_whole_parts() -> None:
    assert "4 batches of 250" in bl.transfer({"beta2": 0.9}, "adam", 256, 1000).ways[0]
    assert bl.transfer({"beta2": 0.9}, "adam", 256, 257.5).ways == ()


def test_a_setting_that_was_not_carried_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="beta1"):
        bl.transfer({"beta2": 0.9}, "adam", 256, 512)["beta1"]


def test_every_optimizer_and_setting_has_a_rule_with_its_words() -> None:
    for optimizer in BASES:
        moved = bl.transfer(all_settings(optimizer), optimizer, 256, 1024, 2000)
        for entry in moved.settings:
            assert all((entry.rule, entry.formula, entry.valid, entry.error, entry.beyond, entry.source)), entry


def test_results_have_their_shapes() -> None:
    moved = bl.transfer({"learning_rate": 3e-4, "beta2": 0.95}, "adamw", 256, 4096, 1000)
    document = json.loads(json.dumps(moved.as_document()))
    assert {"name", "from", "to", "rule", "valid", "error"} <= document["settings"][0].keys()
    assert {"settings", "steps_ratio", "warnings"} <= document.keys()
    assert list(moved.to_frame()["name"]) == ["learning_rate", "beta2"]
    assert any("accumulate the gradients of 16 batches of 256" in way for way in moved.ways)
    assert any("outside of [0.95, 0.9999]" in line for line in moved.warnings)
    assert moved.plot().get_xlabel() == "batch size"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "saturating"}, "`critical_batch_size` must be given for the rule saturating, got none"),
        ({"rule": "cubic"}, "`rule` must be one of linear"),
        ({"optimizer": "adm"}, "`optimizer` must be one of sgd"),
        ({"settings": {}}, "`settings` must give at least one setting"),
        ({"settings": {"beta2": 0.9}}, "`settings` of sgd must be among learning_rate"),
        ({"settings": {"learning_rate": -1.0}}, "`learning_rate` must be finite and at least 0"),
        ({"from_batch": 0}, "`from_batch` must be in"),
        ({"to_batch": math.inf}, "`to_batch` must be in"),
        ({"critical_batch_size": 0}, "`critical_batch_size` must be finite and above 0"),
    ],
)
def test_bad_input_is_refused_by_name(arguments: dict[str, object], message: str) -> None:
    usual: dict[str, object] = {"settings": {"learning_rate": 0.1}, "optimizer": "sgd", "from_batch": 8, "to_batch": 64}
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        bl.transfer(**(usual | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["no json", "{}", '{"moments": []}', '{"moments": [{"spectrum": [1]}]}'])
def test_a_file_that_is_no_measurement_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(bl.BatchlensError, match=r"bad\.json"):
        bl.transfer({"learning_rate": 0.1}, "sgd", 8, 64, measurement=file)


def test_docs_have_the_numbers_that_transfer_quotes() -> None:
    benchmark = load_benchmark()
    page = (Path(__file__).parents[2] / "docs" / "transfer.md").read_text(encoding="utf-8")
    entries = json.loads(benchmark.FILE.read_text(encoding="utf-8"))["entries"]
    for wanted in (("near", "up"), ("wide", "up"), ("wide", "down")):
        shown = [entry for entry in entries if (entry["spectra"], entry["direction"]) == wanted]
        assert benchmark.table(shown) in page, wanted


@pytest.mark.parametrize(
    ("optimizer", "rule", "error"),
    [
        ("sgd", "saturating", "at most 6.6% more steps in 95%"),
        ("sgd", "linear", "at most 59.9% more steps in 95%"),
        ("sgd", "square_root", "not measured here"),
        ("momentum", "saturating", "at most 14.4% more steps in 95%"),
        ("momentum", "square_root_capped", "not measured here"),
        ("kfac", "saturating", "not measured here"),
        ("adamw", "square_root", "1.6x (median), 2.8x (90%)"),
        ("adamw", "square_root_capped", "1.3x (median), 1.8x (90%)"),
        ("adamw", "saturating", "not measured here"),
        ("muon", "square_root_capped", "not measured here"),
    ],
)
def test_every_rule_quotes_what_was_measured_of_it(optimizer: str, rule: str, error: str) -> None:
    values = {"learning_rate": 0.1} | ({"momentum": 0.9} if optimizer == "momentum" else {})
    moved = bl.transfer(values, optimizer, 16, 256, 1024, rule=rule)
    assert error in moved.settings[0].error


@pytest.mark.slow
def test_the_rules_hold_as_far_as_they_say() -> None:
    """At most 5% more steps in 95% of problems near 1/i: SGD up to a quarter of B_crit, momentum up to a sixteenth."""
    draw_problem = load_benchmark().draw_problem
    random = np.random.default_rng(18)  # the 200 problems of the table; of another 200 it is 94% for SGD
    lost: dict[tuple[str, float], list[float]] = {}
    for _ in range(200):
        problem, target = draw_problem(random, "near")
        critical = critical_of(problem, target)
        assert critical is not None
        carrier = Carrier(RATE_RULES["saturating"], critical, cap=rate_cap(problem))
        for family, part in (("sgd", 1 / 16), ("sgd", 1 / 4), ("momentum", 1 / 64), ("momentum", 1 / 16)):
            start, best = (bl.tune(problem, family, size * critical, target) for size in (1 / 256, part))
            assert start.rule is not None
            assert best.steps is not None
            carried = carrier.carry(start.rule, critical / 256, part * critical)
            lost.setdefault((family, part), []).append(
                steps_lost(problem, carried, part * critical, target, best.steps)
            )
    for key, losses in lost.items():
        assert np.mean(np.array(losses) <= 0.05) >= 0.95, key
