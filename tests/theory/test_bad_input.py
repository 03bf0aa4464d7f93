"""Values that make no sense end in one sentence that names them; all others in an answer that is a number."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import batchlens as bl

NAN, INF = math.nan, math.inf
PROBLEM = bl.NoisyQuadratic.power_law(dim=10)
RULE = bl.UpdateRule(0.1, momentum=0.5)


# ---------------------------------------------------------------------------------------------
# Known bad values and what they are answered with
# ---------------------------------------------------------------------------------------------


def rule(**values: Any) -> bl.UpdateRule:
    return bl.UpdateRule(**{"learning_rate": 0.1} | values)


def problem(**values: Any) -> bl.NoisyQuadratic:
    return bl.NoisyQuadratic(**{"curvature": [1.0, 2.0], "noise": [1.0, 1.0], "initial": [1.0, 1.0]} | values)


def ask(function: Callable[..., object], **values: Any) -> object:
    """`function` with good values for what is not given."""
    good: dict[str, Any] = {"problem": PROBLEM, "rule": RULE, "rules": RULE, "batch_size": 8, "steps": 10}
    good |= {"lengths": [3, 4], "target": 0.1, "max_steps": 1000, "examples": 100, "kind": "mle"}
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return function(**{name: good[name] for name in names} | values)


WITH_BATCH_SIZE = (
    bl.risk,
    bl.risk_terms,
    bl.risk_path,
    bl.steady_state_risk,
    bl.hitting_time,
    bl.steps_to_target,
    bl.lower_bound_steps,
)
WITH_TARGET = (bl.hitting_time, bl.steps_to_target, bl.lower_bound_steps)

Bad = tuple[Callable[[], object], str]
VALUE_ERRORS: list[Bad] = [
    (lambda: rule(learning_rate=-0.1), "`learning_rate` must be finite and at least 0, got -0.1."),
    (lambda: rule(learning_rate=NAN), "`learning_rate` must be finite and at least 0, got nan."),
    (lambda: rule(learning_rate=INF), "`learning_rate` must be finite and at least 0, got inf."),
    (lambda: rule(momentum=1.2), "`momentum` must be in [0, 1), got 1.2."),
    (lambda: rule(momentum=1), "`momentum` must be in [0, 1), got 1."),
    (lambda: rule(momentum=-1e-300), "`momentum` must be in [0, 1), got -1e-300."),
    (lambda: rule(momentum=NAN), "`momentum` must be in [0, 1), got nan."),
    (lambda: rule(averaging=1.0), "`averaging` must be in [0, 1), got 1.0."),
    (lambda: rule(averaging=-0.5), "`averaging` must be in [0, 1), got -0.5."),
    (lambda: rule(averaging=INF), "`averaging` must be in [0, 1), got inf."),
    (lambda: rule(power=1.01), "`power` must be in [0, 1], got 1.01."),
    (lambda: rule(power=-0.01), "`power` must be in [0, 1], got -0.01."),
    (lambda: rule(power=NAN), "`power` must be in [0, 1], got nan."),
    (lambda: problem(curvature=[1.0, 0.0]), "`curvature` must be above 0, got 0."),
    (lambda: problem(curvature=[-1.5, 1.0]), "`curvature` must be above 0, got -1.5."),
    (lambda: problem(curvature=[1.0, NAN]), "`curvature` must be finite, got nan."),
    (lambda: problem(curvature=[1.0, INF]), "`curvature` must be finite, got inf."),
    (lambda: problem(curvature=[]), "`curvature` must have at least one entry, got none."),
    (lambda: problem(curvature=1.0), "`curvature` must have one dimension, got 0."),
    (lambda: problem(curvature=[[1.0, 2.0]]), "`curvature` must have one dimension, got 2."),
    (lambda: problem(curvature=[1.0]), "`noise` must have 1 entries, one per coordinate, got 2."),
    (lambda: problem(noise=[1.0] * 3), "`noise` must have 2 entries, one per coordinate, got 3."),
    (lambda: problem(noise=[1.0, -1.0]), "`noise` must be at least 0, got -1."),
    (lambda: problem(noise=[1.0, NAN]), "`noise` must be finite, got nan."),
    (lambda: problem(initial=[]), "`initial` must have 2 entries, one per coordinate, got 0."),
    (lambda: problem(initial=[-0.5, 1.0]), "`initial` must be at least 0, got -0.5."),
    (lambda: problem(initial=[-INF, 1.0]), "`initial` must be finite, got -inf."),
    (lambda: problem(count=[1.0]), "`count` must have 2 entries, one per coordinate, got 1."),
    (lambda: problem(count=[1.0, 0.0]), "`count` must be at least 1, got 0."),
    (lambda: bl.NoisyQuadratic.power_law(0), "`dim` must be at least 1, got 0."),
    (lambda: bl.NoisyQuadratic.power_law(-3), "`dim` must be at least 1, got -3."),
    (lambda: bl.NoisyQuadratic.power_law(1.5), "`dim` must be a whole number, got 1.5."),  # type: ignore[arg-type]
    (lambda: bl.NoisyQuadratic.power_law(9, -1), "`exponent` must be finite and at least 0, got -1."),
    (lambda: bl.NoisyQuadratic.power_law(9, noise=-1), "`noise` must be finite and at least 0, got -1."),
    (lambda: bl.NoisyQuadratic.power_law(9, initial=NAN), "`initial` must be finite and at least 0, got nan."),
    (lambda: bl.NoisyQuadratic.from_spectrum([]), "`curvature` must have at least one entry, got none."),
    (lambda: bl.NoisyQuadratic.from_spectrum([0.0]), "`curvature` must be above 0, got 0."),
    (lambda: bl.NoisyQuadratic.from_spectrum([1.0], noise=INF), "`noise` must be finite and at least 0, got inf."),
    (lambda: PROBLEM.binned(0), "`bins` must be at least 1, got 0."),
    (lambda: PROBLEM.binned(2.5), "`bins` must be a whole number, got 2.5."),  # type: ignore[arg-type]
    (lambda: PROBLEM.binned(9, "up"), "`rounding` must be one of mean, down, got 'up'."),  # type: ignore[arg-type]
    (lambda: ask(bl.risk, steps=[]), "`steps` must have at least one entry, got none."),
    (lambda: ask(bl.risk, steps=[[1, 2]]), "`steps` must be one number or a flat sequence of them, got [[1, 2]]."),
    (lambda: ask(bl.risk_path, rules=[RULE]), "`rules` must have 2 entries, one per length, got 1."),
    (lambda: ask(bl.risk_path, batch_size=[1, 2, 3]), "`batch_size` must have 2 entries, one per length, got 3."),
    (lambda: ask(bl.risk_path, batch_size=[1, 0]), "`batch_size` must be finite and above 0, got 0."),
    (lambda: ask(bl.hitting_time, max_steps=-1), "`max_steps` must be at least 0, got -1."),
    (lambda: ask(bl.hitting_time, max_steps=2.5), "`max_steps` must be a whole number, got 2.5."),
    (lambda: ask(bl.steps_to_target, max_steps=-1), "`max_steps` must be at least 0, got -1."),
    (lambda: ask(bl.lower_bound_risk, examples=-1), "`examples` must be finite and at least 0, got -1."),
    (lambda: ask(bl.lower_bound_risk, examples=NAN), "`examples` must be finite and at least 0, got nan."),
    (lambda: ask(bl.lower_bound_risk, kind="map"), "`kind` must be one of mle, bayes, got 'map'."),
    (lambda: ask(bl.lower_bound_steps, kind=""), "`kind` must be one of mle, bayes, got ''."),
]
TYPE_ERRORS: list[Bad] = [
    (lambda: rule(learning_rate="fast"), "`learning_rate` must be a number, got 'fast'."),
    (lambda: rule(learning_rate=None), "`learning_rate` must be a number, got None."),
    (lambda: rule(momentum=True), "`momentum` must be a number, got True."),
    (lambda: rule(power=[0.5]), "`power` must be a number, got [0.5]."),
    (lambda: rule(averaging=1j), "`averaging` must be a number, got 1j."),
    (lambda: rule(nesterov=1), "`nesterov` must be True or False, got 1."),
    (lambda: rule(nesterov="yes"), "`nesterov` must be True or False, got 'yes'."),
    (lambda: problem(curvature="steep"), "`curvature` must be an array of numbers, got 'steep'."),
    (lambda: problem(curvature=[1j, 1.0]), "`curvature` must be an array of numbers, got [1j, 1.0]."),
    (lambda: problem(noise=[[1.0], 2.0]), "`noise` must be an array of numbers, got [[1.0], 2.0]."),
    (lambda: bl.NoisyQuadratic.power_law("ten"), "`dim` must be a whole number, got 'ten'."),  # type: ignore[arg-type]
    (lambda: PROBLEM.binned(None), "`bins` must be a whole number, got None."),  # type: ignore[arg-type]
    (lambda: ask(bl.risk, steps="ten"), "`steps` must be a whole number, got 'ten'."),
    (lambda: ask(bl.risk, steps=[1, None]), "`steps` must be a whole number, got None."),
    (lambda: ask(bl.risk, steps=True), "`steps` must be a whole number, got True."),
    (lambda: ask(bl.risk_path, lengths=5), "`lengths` must be a sequence, one entry per piece, got 5."),
]
for function in WITH_BATCH_SIZE:
    for size in (0, -1, NAN, INF):
        message = f"`batch_size` must be finite and above 0, got {size}."
        VALUE_ERRORS.append((lambda f=function, b=size: ask(f, batch_size=b), message))  # type: ignore[misc]
    TYPE_ERRORS.append(
        (lambda f=function: ask(f, batch_size="8"), "`batch_size` must be a number, got '8'.")  # type: ignore[misc]
    )
for function in WITH_TARGET:
    for value in (0, -0.01, NAN, INF):
        message = f"`target` must be finite and above 0, got {value}."
        VALUE_ERRORS.append((lambda f=function, v=value: ask(f, target=v), message))  # type: ignore[misc]
for function in (bl.risk, bl.risk_terms):
    for many in (lambda t: t, lambda t: [3, t]):
        VALUE_ERRORS += [
            (lambda f=function, m=many: ask(f, steps=m(-1)), "`steps` must be at least 0, got -1."),  # type: ignore[misc]
            (lambda f=function, m=many: ask(f, steps=m(1.5)), "`steps` must be a whole number, got 1.5."),  # type: ignore[misc]
            (lambda f=function, m=many: ask(f, steps=m(NAN)), "`steps` must be a whole number, got nan."),  # type: ignore[misc]
        ]


@pytest.mark.parametrize(
    ("call", "message", "kind"),
    [(*bad, ValueError) for bad in VALUE_ERRORS] + [(*bad, TypeError) for bad in TYPE_ERRORS],
    ids=[message for _, message in VALUE_ERRORS + TYPE_ERRORS],
)
def test_known_bad_values(call: Callable[[], object], message: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message
    assert type(caught.value) is kind


def named(call: Callable[[], object]) -> str:
    """The argument that an error names first."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    return str(re.search("`(.*?)`", str(caught.value))[1])  # type: ignore[index]


def test_errors_name_the_argument_as_the_caller_knows_it() -> None:
    for bad in ([], [3, -1], [3, 1.5], [[3]], 7):
        assert named(lambda bad=bad: ask(bl.risk_path, lengths=bad)) == "lengths"  # type: ignore[misc]
    assert named(lambda: bl.NoisyQuadratic.power_law(10, exponent=1000.0)) == "exponent"
    assert named(lambda: bl.NoisyQuadratic.from_spectrum([1e308], noise=10.0)) == "noise"


@pytest.mark.parametrize(
    "value",
    [10**400, Fraction(10**400), np.array([0.1]), np.array([0.1, 0.2]), np.complex128(1j)],
    ids=["huge int", "huge fraction", "array of one", "array of two", "complex"],
)
def test_things_that_are_almost_numbers(value: object) -> None:
    assert named(lambda: rule(learning_rate=value)) == "learning_rate"
    assert named(lambda: ask(bl.risk, batch_size=value)) == "batch_size"


@pytest.mark.parametrize(
    "value",
    [np.array([1j, 1.0]), ["1", "2"], [None, 1.0], [10**400, 1]],
    ids=["complex", "text", "None", "huge int"],
)
def test_things_that_are_almost_arrays_of_numbers(value: object) -> None:
    assert named(lambda: problem(noise=value)) == "noise"


def test_things_that_are_almost_step_counts() -> None:
    for value in ([[1], [2, 3]], [Fraction(10**400)], np.array([1.0, NAN]), {"steps": 3}):
        assert named(lambda value=value: ask(bl.risk, steps=value)) == "steps"  # type: ignore[misc]


@pytest.mark.parametrize("function", [bl.risk, bl.risk_path, bl.is_stable, bl.steps_to_target, bl.lower_bound_steps])
def test_things_that_are_no_problem(function: Callable[..., object]) -> None:
    assert named(lambda: ask(function, problem=[1.0])) == "problem"


@pytest.mark.parametrize("function", [bl.risk, bl.is_stable, bl.steps_to_target, bl.steady_state_risk])
def test_things_that_are_no_rule(function: Callable[..., object]) -> None:
    assert named(lambda: ask(function, rule=0.1)) == "rule"


@pytest.mark.parametrize("value", [0.1, None, [RULE, 0.1]])
def test_things_that_are_no_rules(value: object) -> None:
    assert named(lambda: ask(bl.risk_path, rules=value)) == "rules"


# ---------------------------------------------------------------------------------------------
# Random values
# ---------------------------------------------------------------------------------------------

# derandomize: the same examples every time, so that a failure is the change's and not the day's
throw = settings(max_examples=200, deadline=None, derandomize=True, database=None)
LONGEST = 10.0  # seconds that one example may take: some hundred times what any should

EXTREMES = (0.0, -0.0, 5e-324, 1e-310, 1e-160, 1e-16, 1 - 2.0**-53, 1.0, 2.0, 4.0, 1e16, 1e160, 1.7e308)
positive = st.floats(0, exclude_min=True, allow_infinity=False) | st.sampled_from([x for x in EXTREMES if x > 0])
at_least_0 = st.just(0.0) | positive
coefficients = st.floats(0, 1, exclude_max=True) | st.sampled_from([0.0, 1 - 1e-8, 1 - 2.0**-53])
step_counts = st.integers(0, 2**62) | st.integers(0, 100)
anything = st.one_of(
    st.floats(),
    st.sampled_from(EXTREMES),
    st.integers(-(10**25), 10**25),
    st.integers(-3, 100),
    st.none(),
    st.booleans(),
    st.text(max_size=3),
    st.complex_numbers(),
    st.fractions(),
    st.decimals(),
    st.lists(st.floats() | st.integers(-3, 100) | st.none(), max_size=3),
    st.lists(st.lists(st.floats(0, 9), max_size=2), max_size=2),
    st.floats().map(np.float64),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.array),
)


@st.composite
def rules(draw: st.DrawFn) -> bl.UpdateRule:
    """Any rule; half of them with a learning rate for which something happens."""
    learning_rate = draw(at_least_0 | st.floats(0, 4))
    return bl.UpdateRule(
        learning_rate, draw(coefficients), draw(st.booleans()), draw(coefficients), draw(st.floats(0, 1))
    )


@st.composite
def problems(draw: st.DrawFn) -> bl.NoisyQuadratic:
    """Any problem of up to 4 coordinates; half of them of ordinary size."""
    size = draw(st.integers(1, 4))
    ordinary = draw(st.booleans())

    def column(values: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(st.floats(1e-3, 1e3) if ordinary else values, min_size=size, max_size=size))

    count = [max(1.0, n) for n in column(positive)]
    return bl.NoisyQuadratic(column(positive), column(at_least_0), column(at_least_0), count)


def numbers_in(answer: object) -> list[float]:
    match answer:
        case None | str() | bool():
            return []
        case int():  # of any size: `lower_bound_steps` is not limited to what a float can hold
            return []
        case float() | np.ndarray():
            return np.ravel(answer).tolist()
        case bl.RiskTerms():
            return numbers_in(answer.deterministic) + numbers_in(answer.noise) + numbers_in(answer.total)
        case bl.NoisyQuadratic():
            columns = [answer.curvature, answer.noise, answer.initial, answer.count]
            return [*np.ravel(columns).tolist(), answer.dim, answer.trace, answer.initial_risk]
        case bl.UpdateRule():
            return [answer.learning_rate, answer.momentum, answer.averaging, answer.power]
        case tuple():
            return [number for entry in answer for number in numbers_in(entry)]
    raise AssertionError(f"unexpected answer {answer!r}")


def check(names: str, call: Callable[[], object]) -> object:
    """`call` answers with numbers, none of them NaN, or with an error that names one of `names`; soon."""
    begin = time.perf_counter()
    message = answer = None
    try:
        answer = call()
    except (ValueError, TypeError, bl.BatchlensError) as error:
        message = str(error)
    assert time.perf_counter() - begin < LONGEST
    assert message is None or re.findall("`(.*?)`", message)[:1] in [[name] for name in names.split()], message
    assert not any(math.isnan(number) for number in numbers_in(answer)), answer
    return answer


@pytest.fixture(autouse=True, scope="module")
def _quick_answers() -> Iterator[None]:
    """Nothing is left to compile, and a search that looks at every step gives up early."""
    for function in WITH_BATCH_SIZE:
        ask(function)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("batchlens.theory._first_hit._BUDGET", 10**6)
        yield


@throw
@given(anything, anything, anything, anything, anything)
def test_any_rule(learning_rate: Any, momentum: Any, nesterov: Any, averaging: Any, power: Any) -> None:
    check(
        "learning_rate momentum nesterov averaging power",
        lambda: bl.UpdateRule(learning_rate, momentum, nesterov, averaging, power),
    )


@throw
@given(st.sampled_from(["learning_rate", "momentum", "nesterov", "averaging", "power"]), anything)
def test_any_setting_of_a_rule(name: str, value: Any) -> None:
    check(name, lambda: rule(**{name: value}))


@throw
@given(st.sampled_from(["curvature", "noise", "initial", "count"]), anything)
def test_any_column(name: str, value: Any) -> None:
    check("curvature noise initial count", lambda: problem(**{name: value}))


@throw
@given(st.lists(st.lists(st.floats(), max_size=3), min_size=3, max_size=4))
def test_any_columns(columns: list[list[float]]) -> None:
    check("curvature noise initial count", lambda: bl.NoisyQuadratic(*columns))


@throw
@given(anything, anything, anything, anything)
def test_any_power_law(dim: Any, exponent: Any, noise: Any, initial: Any) -> None:
    check("dim exponent noise initial", lambda: bl.NoisyQuadratic.power_law(dim, exponent, noise, initial))


@throw
@given(st.integers(1, 1000), at_least_0, at_least_0, at_least_0)
def test_any_power_law_of_numbers(dim: int, exponent: float, noise: float, initial: float) -> None:
    check("dim exponent noise initial", lambda: bl.NoisyQuadratic.power_law(dim, exponent, noise, initial))


@throw
@given(st.lists(positive, min_size=1, max_size=4), anything | at_least_0, anything | at_least_0)
def test_any_spectrum(curvature: list[float], noise: Any, initial: Any) -> None:
    check(
        "curvature noise initial count",
        lambda: bl.NoisyQuadratic.from_spectrum(curvature, noise, initial),
    )


@throw
@given(problems(), anything | st.integers(1, 100), st.sampled_from(["mean", "down"]) | anything)
def test_any_bins(problem: bl.NoisyQuadratic, bins: Any, rounding: Any) -> None:
    # The sums of an extreme problem's bins may be beyond a double: an error may say so.
    check("bins rounding curvature noise initial count", lambda: problem.binned(bins, rounding))


@throw
@given(anything)
def test_any_batch_size(batch_size: Any) -> None:
    for function in WITH_BATCH_SIZE:
        check("batch_size target", lambda f=function: ask(f, batch_size=batch_size))  # type: ignore[misc]


@throw
@given(anything)
def test_any_target(target: Any) -> None:
    for function in WITH_TARGET:
        check("batch_size target", lambda f=function: ask(f, target=target))  # type: ignore[misc]


@throw
@given(anything | st.lists(anything, max_size=3))
def test_any_steps(steps: Any) -> None:
    check("steps", lambda: ask(bl.risk, steps=steps))
    check("steps", lambda: ask(bl.risk_terms, steps=steps))
    check("lengths rules batch_size", lambda: ask(bl.risk_path, lengths=steps))
    check("max_steps", lambda: ask(bl.hitting_time, max_steps=steps))
    check("max_steps", lambda: ask(bl.steps_to_target, max_steps=steps))


@throw
@given(anything, st.sampled_from(["mle", "bayes"]) | anything)
def test_any_examples(examples: Any, kind: Any) -> None:
    check("examples kind", lambda: ask(bl.lower_bound_risk, examples=examples, kind=kind))
    check("kind", lambda: ask(bl.lower_bound_steps, kind=kind))


@throw
@given(anything)
def test_any_problem_or_rule(value: Any) -> None:
    for function in (bl.is_stable, bl.convergence_rate, bl.steady_state_risk, bl.risk, bl.hitting_time):
        check("problem", lambda f=function: ask(f, problem=value))  # type: ignore[misc]
        check("rule", lambda f=function: ask(f, rule=value))  # type: ignore[misc]
    check("rules", lambda: ask(bl.risk_path, rules=value))
    check("rules", lambda: ask(bl.risk_path, rules=[RULE, value]))


@throw
@given(problems(), rules(), positive, st.lists(step_counts, min_size=1, max_size=4))
@example(bl.NoisyQuadratic([1e308], [1e308], [1e308]), RULE, 1.0, [0, 1, 5])
@example(bl.NoisyQuadratic([1e-308], [1e308], [1e308]), RULE, 1.0, [0, 1, 5])
@example(PROBLEM, RULE, 5e-324, [0, 1, 5])
def test_any_risk(problem: bl.NoisyQuadratic, rule: bl.UpdateRule, batch_size: float, steps: list[int]) -> None:
    # The problem may be so extreme that no double holds its risk: an error may say so.
    names = "problem curvature noise initial count batch_size"
    terms = check(names, lambda: bl.risk_terms(problem, rule, batch_size, steps))
    total = check(names, lambda: bl.risk(problem, rule, batch_size, steps))
    if isinstance(terms, bl.RiskTerms) and isinstance(total, np.ndarray):
        np.testing.assert_array_equal(terms.total, total)
        assert (terms.deterministic >= 0).all()
        assert (terms.noise >= 0).all()


@throw
@given(problems(), rules(), positive)
def test_any_long_run(problem: bl.NoisyQuadratic, rule: bl.UpdateRule, batch_size: float) -> None:
    names = "problem curvature noise initial count batch_size"
    stable = check("", lambda: bl.is_stable(problem, rule))
    assert isinstance(stable, bool)
    steady = check(names, lambda: bl.steady_state_risk(problem, rule, batch_size))
    assert steady is None or isinstance(steady, float)
    if steady is not None and not stable:
        assert steady == INF
    rate = check("", lambda: bl.convergence_rate(problem, rule))
    assert isinstance(rate, float)
    assert rate <= 1 or not stable
    assert rate >= 1 or stable


@throw
@given(
    problems(),
    st.lists(st.tuples(rules(), positive, st.integers(0, 3) | step_counts), min_size=1, max_size=4),
)
@example(PROBLEM, [(bl.UpdateRule(1e140, 0.9, power=0.5), 1.0, 1), (bl.UpdateRule(0.0, 0.9), 1.0, 1)])
@example(
    bl.NoisyQuadratic([5e-324], [1.0], [1.0]),
    [(bl.UpdateRule(0.0, power=power), 1.0, 1) for power in (0.0, 1.0, 0.0)],
)
def test_any_path(problem: bl.NoisyQuadratic, pieces: list[tuple[bl.UpdateRule, float, int]]) -> None:
    path_rules, sizes, lengths = (list(column) for column in zip(*pieces, strict=True))
    names = "problem curvature noise initial count batch_size"
    check(names, lambda: bl.risk_path(problem, path_rules, sizes, lengths))


@throw
@given(problems(), rules(), positive, positive, st.integers(0, 2**61) | st.just(10**12))
@example(PROBLEM, bl.UpdateRule(1.0, 1 - 1e-12, averaging=0.9), 1e40, 1e-16, 10**12)
@example(PROBLEM, bl.UpdateRule(1e-6, 1 - 1e-12), 1e40, 1e-16, 10**12)
@example(bl.NoisyQuadratic([5e-324], [1.0], [0.0]), bl.UpdateRule(0.0), 1.0, 1.0, 10**12)
def test_any_search(
    problem: bl.NoisyQuadratic, rule: bl.UpdateRule, batch_size: float, target: float, max_steps: int
) -> None:
    names = "problem curvature noise initial count batch_size target"
    found = check(names, lambda: bl.hitting_time(problem, rule, batch_size, target, max_steps))
    steps = check(f"{names} max_steps", lambda: bl.steps_to_target(problem, rule, batch_size, target, max_steps))
    if isinstance(found, bl.HittingTime):
        assert found.steps == steps
        assert (found.status == "reached") == (found.steps is not None)
        if found.steps is not None:
            assert found.steps <= max_steps
            at = check(names, lambda: bl.risk(problem, rule, batch_size, found.steps or 0))  # refuses endless noise
            assert not isinstance(at, float) or at <= target * (1 + 1e-9) or target < 1e-290


@throw
@given(problems(), positive, at_least_0, positive, st.sampled_from(["mle", "bayes"]))
@example(PROBLEM, 1e-300, 1.0, 1e-300, "mle")
@example(PROBLEM, 1e-300, 1.0, 1e-300, "bayes")
@example(bl.NoisyQuadratic([1e300], [1e-300], [1e-300]), 1.0, 1.0, 1.0, "bayes")
@example(bl.NoisyQuadratic([1e-300], [1e300], [1.0]), 1.0, 1.0, 1.0, "bayes")
def test_any_lower_bound(
    problem: bl.NoisyQuadratic, batch_size: float, examples: float, target: float, kind: Any
) -> None:
    names = "problem curvature noise initial count batch_size target examples"
    bound = check(names, lambda: bl.lower_bound_risk(problem, examples, kind))
    assert bound is None or (isinstance(bound, float) and bound >= 0)
    steps = check(names, lambda: bl.lower_bound_steps(problem, batch_size, target, kind))
    assert steps is None or (isinstance(steps, int) and steps >= 0)
