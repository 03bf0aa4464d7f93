"""Guided search: the same result however it is run, what counts of cut runs, fresh seeds, and one sweep for real."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import fmean

import pytest
from scipy import stats

import batchlens as bl
from batchlens._grid import PLAIN
from batchlens.cli.sweeping import _best
from batchlens.cli.terminal import DURATION, PART, Number
from batchlens.errors import BatchlensError
from batchlens.optimizers import is_averaged
from batchlens.sweep._cells import guided_results
from batchlens.sweep._declaration import Cell, Shard
from batchlens.sweep._declare import declare
from batchlens.sweep._filling import _chooses_steadily, fill
from batchlens.sweep._guided import (
    CHOOSING,
    FINALIST,
    KEEP,
    LEAST_SEEDS,
    MOST_SEEDS,
    Guided,
    pauses,
    race_end,
    rounds_of,
)
from batchlens.sweep._progress import CellProgress, GuidedMeter
from batchlens.sweep._reporting import half_width, mean_steps, shared_half_widths
from batchlens.sweep._store import Store
from batchlens.sweep._trial import Key, Status, Trial
from batchlens.training.spaces import Range
from tests.program import run
from tests.sweep.guided_simulation import (
    BUDGET,
    MOMENTUM,
    World,
    drive,
    finish,
    found,
    make_declaration,
    make_queue,
    steps_of,
)

DECLARATION = make_declaration(trials=24)
KILLS = 20


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    """Of a sweep that nobody disturbs."""
    return finish(DECLARATION)


@pytest.fixture(scope="module")
def wanted(trials: list[Trial]) -> dict[object, object]:
    return found(DECLARATION, trials)


# ---------------------------------------------------------------------------------------------
# However it is run
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "shuffle"), [(3, None), (40, None), (1, 1), (2, 5), (7, 6)])
def test_result_depends_on_neither_workers_nor_order(
    wanted: dict[object, object], workers: int, shuffle: int | None
) -> None:
    assert found(DECLARATION, finish(DECLARATION, workers=workers, shuffle=shuffle, seed=workers)) == wanted


def test_what_is_cut_changes_nothing_but_the_cost(wanted: dict[object, object]) -> None:
    cut, whole = World(), World()
    assert found(DECLARATION, finish(DECLARATION, cut)) == wanted
    assert found(DECLARATION, finish(DECLARATION, whole, pruning=False)) == wanted
    print(f"{cut.taken} steps instead of {whole.taken}")
    assert cut.taken < whole.taken


@pytest.mark.parametrize("checkpoints", [True, False], ids=["resumed", "from_the_start"])
def test_kills_change_nothing(wanted: dict[object, object], checkpoints: bool) -> None:
    """What ran and what waited is lost; with checkpoints, races go on further than where others wait."""
    random, world, kept, kills = Random(3), World(), list[Trial](), 0
    while (queue := make_queue(DECLARATION, kept)).open_count:
        events = random.randint(1, 12) if kills < KILLS else math.inf
        kept = drive(queue, world, workers=random.randint(1, 5), seed=kills, events=events)
        kills += kills < KILLS
        if not checkpoints:
            world.reached.clear()
    assert kills == KILLS
    assert found(DECLARATION, kept) == wanted


def test_a_race_that_went_further_than_it_had_to_changes_nothing(
    trials: list[Trial], wanted: dict[object, object]
) -> None:
    """Every run has a checkpoint from just before it arrives: some arrive now, but after their horizon."""
    first = rounds_of(DECLARATION.trials)[0]
    raced = [trial for trial in trials if trial.key.number < first and trial.key.optimizer != "sgd+ema"]
    world = World()
    for trial in raced:
        arrives = min(steps_of(trial.key, dict(trial.settings), trial.seed), BUDGET)
        world.reached[trial.key] = max((pause for pause in pauses(BUDGET) if pause < arrives), default=0)
    kept = finish(DECLARATION, world)
    guided = Guided(DECLARATION, kept)
    steps = {trial.key: guided.trials[trial.key].steps or 0 for trial in raced}
    assert any(steps[trial.key] > guided.horizon(trial.key.cell, 0) for trial in raced)
    assert found(DECLARATION, kept) == wanted


def test_trials_of_a_race_wait_for_the_slowest() -> None:
    declaration = make_declaration(("sgd",), sizes=(8,), trials=12)
    queue, (first, second, *_) = make_queue(declaration), pauses(BUDGET)
    tasks = [task for task in (queue.take() for _ in range(rounds_of(12)[0])) if task is not None]
    assert [task.pause for task in tasks] == [first] * rounds_of(12)[0]
    for task in tasks:
        assert queue.take() is None
        queue.pause(task.key, {"steps_taken": first})
    after = queue.take()
    assert after is not None
    assert after.pause == second


def test_nothing_is_left_to_do_in_the_end(trials: list[Trial]) -> None:
    queue = make_queue(DECLARATION, trials)
    assert (queue.open_count, queue.take()) == (0, None)
    assert len({trial.key for trial in trials}) == len(trials)
    progress = GuidedMeter(queue).measure(1, 0, 0.0)
    assert progress.cells_done == len(DECLARATION.cells)
    assert progress.trials_left == 0
    for entry in progress.cells:
        assert entry.counted == entry.trials
        assert entry.best_steps == mean_steps(queue.guided.reports(entry.cell))
        assert entry.uncertainty == half_width(queue.guided.reports(entry.cell))


def test_the_surface_tells_how_sure_a_cell_is_before_seeds_do(trials: list[Trial]) -> None:
    first = rounds_of(DECLARATION.trials)[0]
    searched = [trial for trial in trials if trial.key.number < first]
    early = GuidedMeter(make_queue(DECLARATION, searched)).measure(1, 0, 0.0)
    assert all(entry.uncertainty is not None for entry in early.cells if not is_averaged(entry.cell.optimizer))
    none_done = GuidedMeter(make_queue(DECLARATION, searched[1:])).measure(1, 0, 0.0)
    family = Guided(DECLARATION, ()).family(searched[0].key.optimizer)
    assert all(entry.uncertainty is None for entry in none_done.cells if entry.cell.optimizer in family)


# ---------------------------------------------------------------------------------------------
# Shards
# ---------------------------------------------------------------------------------------------


def test_shards_are_families_and_together_the_sweep(tmp_path: Path) -> None:
    declaration = make_declaration(("sgd", "adam", "momentum", "adam_no_momentum"), trials=8)
    assert declaration.families == [["sgd", "momentum"], ["adam", "adam_no_momentum"]]
    paths = []
    for index in (1, 2):
        shard = Shard(index, 2)
        kept = drive(make_queue(declaration, shard=shard), World())
        assert {trial.key.optimizer for trial in kept} == set(declaration.families[index - 1])
        paths.append(tmp_path / f"{index}.sqlite")
        with Store.open_to_write(paths[-1], declaration, str(shard)) as store:
            for trial in kept:
                store.add(trial)
    assert bl.merge_sweeps(tmp_path / "all.sqlite", paths).complete
    with Store.open(tmp_path / "all.sqlite") as store:
        assert found(declaration, store.read_trials()) == found(declaration, finish(declaration))


def test_a_family_is_complete_before_the_next_one_begins() -> None:
    declaration = make_declaration(("adam_no_momentum", "sgd", "momentum", "adam"), trials=8)
    order = [trial.key.optimizer for trial in finish(declaration)]
    first, second = (set(family) for family in declaration.families)
    assert set(order) == first | second
    assert [name in first for name in order] == sorted((name in first for name in order), reverse=True)


def test_finer_shards_are_refused(tmp_path: Path) -> None:
    sweep = declare("digits", ["sgd", "momentum", "adam"], batch_sizes=[64], trials=2)
    with pytest.raises(ValueError, match="`shard` must be one of at most 2, got 1/3: rounds of a guided search need"):
        fill(sweep, tmp_path / "a", shard=Shard(1, 3))
    with pytest.raises(ValueError, match="`repeats` is for sobol"):
        fill(sweep, tmp_path / "a", repeats=1)
    assert list(tmp_path.iterdir()) == []


def test_another_number_of_trials_is_another_search(tmp_path: Path) -> None:
    with Store.open_to_write(tmp_path / "a", DECLARATION):
        pass
    with pytest.raises(BatchlensError, match="was made for 24 trials, which its rounds follow from"):
        Store.open_to_write(tmp_path / "a", make_declaration(trials=25))
    with Store.open_to_write(tmp_path / "a", make_declaration(trials=24, seeds=9, precision=0.1)) as store:
        assert (store.declaration.seeds, store.declaration.precision) == (9, 0.1)


# ---------------------------------------------------------------------------------------------
# Rounds and races
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trials", [1, 2, 3, 7, 12, 29, 100])
def test_rounds_share_all_trials(trials: int) -> None:
    rounds = rounds_of(trials)
    assert sum(rounds) == trials
    assert min(rounds) > 0
    assert list(rounds[1:]) == sorted(rounds[1:], reverse=True)


def test_pauses_lie_apart_and_within_the_budget() -> None:
    assert pauses(10) == []
    many = pauses(100_000)
    assert all(later >= 1.5 * earlier for earlier, later in pairwise(many))
    assert pauses(many[3]) == many[:3]


def test_a_race_ends_at_the_pause_by_which_four_have_arrived() -> None:
    first, second, *_ = pauses(1000)
    assert race_end([first] * KEEP, 1000) == first
    assert race_end([first] * (KEEP - 1) + [first + 0.5], 1000) == second
    assert race_end([], 1000) == 1000


def test_a_race_ends_where_the_first_to_arrive_is_well_behind() -> None:
    first, second, third, *_ = pauses(1000)
    assert race_end([first / 1.5], 1000) == first
    assert race_end([first], 1000) == second
    assert race_end([second, second / 1.4], 1000) == third
    assert race_end([900.0], 1000) == 1000


def test_the_best_of_every_round_are_known_exactly() -> None:
    """Among all runs up to a round, as they would have ended uncut: four, if not much slower than the first."""
    declaration = make_declaration(("momentum",), trials=24)
    guided = Guided(declaration, finish(declaration))
    for cell in declaration.cells:
        trials = [guided.trials[Key(*cell, number)] for number in range(24)]
        truth = [steps_of(trial.key, dict(trial.settings), trial.seed) for trial in trials]
        assert any(trial.status == "pruned" for trial in trials)
        raced = 1.5 * min(truth[: rounds_of(24)[0]])
        for rounds in range(1, len(rounds_of(24)) + 1):
            count = sum(rounds_of(24)[:rounds])
            known = guided.known(cell, rounds)
            best = [steps for steps in sorted(truth[:count])[:KEEP] if steps <= raced]
            assert best
            assert known[: len(best)] == best
            assert set(known) <= set(truth)


def make_trial(key: Key, status: Status, taken: int, **crossings: float) -> Trial:
    target = DECLARATION.main_target
    met = {name.replace("_", " "): (math.ceil(when), when) for name, when in crossings.items()}
    settings = {"learning_rate": 0.1}
    return Trial(key, {"learning_rate": 0.5}, settings, 0, status, None, taken, crossings={target: met} if met else {})


def test_a_run_of_the_plain_optimizer_is_one_of_the_averaged_and_of_momentum_at_0() -> None:
    declaration = make_declaration(("sgd", "sgd+ema", "momentum", "momentum+ema"), sizes=(8,), trials=1)
    trial = make_trial(Key("sgd", 8, 0), "reached", 60, plain=50.5, window_0=40.25)
    guided = Guided(declaration, [trial])
    known = {name: guided.known(Cell(name, 8), 1) for name in declaration.optimizers}
    assert known == {"sgd": [50.5], "sgd+ema": [40.25], "momentum": [50.5], "momentum+ema": [40.25]}
    assert guided.sources("sgd") == ["sgd", "sgd+ema"]
    assert guided.sources("momentum+ema") == ["momentum+ema", "momentum", "sgd", "sgd+ema"]
    queue = make_queue(declaration, [trial])
    (seen,) = queue._seen(Cell("momentum", 8), 1)
    assert sorted(queue.spaces[Cell("momentum", 8)]) == ["learning_rate", "momentum"]
    assert seen.point[1] == MOMENTUM.fraction(0)


def test_what_an_average_met_counts_even_where_the_run_was_cut() -> None:
    declaration = make_declaration(("sgd", "sgd+ema"), sizes=(8,), trials=12)
    first, second, *_ = pauses(BUDGET)
    arrived = [make_trial(Key("sgd", 8, number), "reached", first, plain=first - number) for number in range(KEEP - 1)]
    late = make_trial(Key("sgd", 8, KEEP - 1), "reached", 900, plain=800.0, window_0=first - 0.5)
    assert Guided(declaration, [*arrived, late]).horizon(Cell("sgd", 8), 0) == second
    fourth = make_trial(Key("sgd", 8, KEEP), "reached", first, plain=first - 0.25)
    guided = Guided(declaration, [*arrived, late, fourth])
    assert guided.horizon(Cell("sgd", 8), 0) == first
    plain, mean = (guided.outcomes(Cell(name, 8), 1)[KEEP - 1] for name in ("sgd", "sgd+ema"))
    assert (plain.steps, plain.censored) == (first, True)
    assert (mean.steps, mean.censored) == (first - 0.5, False)


@pytest.mark.parametrize(("steady", "number"), [(False, FINALIST), (True, FINALIST + 1)])
def test_of_two_finalists_that_cannot_be_told_apart_the_steadier_is_chosen(steady: bool, number: int) -> None:
    declaration = make_declaration(("sgd",), sizes=(8,), trials=12, steady=steady)
    steps = {FINALIST: (15.0, 27.3, 16.5), FINALIST + 1: (18.4, 21.7, 17.2)}  # 18.9 and 19.0 in the mean
    trials = [
        make_trial(Key("sgd", 8, finalist, repeat), "reached", 30, plain=taken)
        for finalist, runs in steps.items()
        for repeat, taken in enumerate(runs, start=1)
    ]
    choice = Guided(declaration, trials).chosen(Cell("sgd", 8))
    assert choice is not None
    assert choice.number == number


def test_a_store_of_an_earlier_version_goes_on_choosing_as_it_did(tmp_path: Path) -> None:
    assert _chooses_steadily(tmp_path / "new.sqlite")
    Store.open_to_write(tmp_path / "old.sqlite", make_declaration()).close()
    assert not _chooses_steadily(tmp_path / "old.sqlite")


def test_momentum_at_0_is_0() -> None:
    """From its place on a range it may come back as a little less, which no run takes."""
    range_ = Range(0.1, 0.9, "log_one_minus")
    assert range_.at(range_.fraction(0.0)) < 0
    cell = Cell("momentum", 8)
    queue = make_queue(make_declaration(("momentum",)))
    queue.spaces = {cell: {"momentum": range_}}
    assert queue._settings(cell, {"momentum": range_.fraction(0.0)}) == {"momentum": 0.0}


# ---------------------------------------------------------------------------------------------
# Finalists and fresh seeds
# ---------------------------------------------------------------------------------------------


def test_seeds_that_report_had_no_part_in_the_choice(trials: list[Trial]) -> None:
    guided = Guided(DECLARATION, trials)
    for result in guided_results(DECLARATION, trials):
        assert result.reported is not None
        reports = guided.reports(result.cell)
        others = {trial.seed for trial in trials if trial.key.cell == result.cell and trial not in reports}
        assert not others.intersection(trial.seed for trial in reports)
        assert len({trial.seed for trial in reports}) == len(reports) == DECLARATION.seeds
        logs = [math.log(trial.interpolated or 0) for trial in reports]
        assert result.reported.steps == pytest.approx(math.exp(fmean(logs)))
        low, high = result.reported.interval or (None, None)
        assert low is not None
        assert high is not None
        assert low < result.reported.steps < high
        assert result.reported.minimum < result.reported.steps * 1.05
        assert (result.reported.weights == PLAIN) != (result.cell.optimizer == "sgd+ema")


def test_finalists_share_their_seeds(trials: list[Trial]) -> None:
    ended = {trial.key: trial for trial in trials}
    for cell in DECLARATION.cells:
        for repeat in range(1, CHOOSING + 1):
            one, other = (ended[Key(*cell, FINALIST + place, repeat)] for place in (0, 1))
            assert one.seed == other.seed
            assert one.position != other.position


@pytest.mark.parametrize("status", ["diverged", "failed"])
def test_a_finalist_that_breaks_early_is_not_taken_for_a_fast_one(trials: list[Trial], status: Status) -> None:
    cell = Cell("sgd", 64)
    guided = Guided(DECLARATION, trials)
    choice = guided.chosen(cell)
    assert choice is not None
    other = FINALIST + 1 if choice.number == FINALIST else FINALIST
    for repeat in range(1, CHOOSING + 1):
        guided.add(make_trial(Key(*cell, other, repeat), status, 2))
    assert guided.chosen(cell) == choice


def test_precision_gives_fewer_or_more_seeds() -> None:
    counts = {}
    for precision in (0.3, 0.03, 1e-4):
        declaration = make_declaration(("sgd",), sizes=(64,), trials=8, seeds=5, precision=precision)
        kept = finish(declaration, workers=4)
        guided = Guided(declaration, kept)
        reports = guided.reports(Cell("sgd", 64))
        counts[precision] = len(reports)
        assert guided.complete(Cell("sgd", 64))
        assert found(declaration, finish(declaration)) == found(declaration, kept)
        if len(reports) < MOST_SEEDS:
            assert (half_width(reports) or 1) <= precision
            assert len(reports) == LEAST_SEEDS or (half_width(reports[:-1]) or 1) > precision
    assert counts[0.3] == LEAST_SEEDS < counts[0.03] < counts[1e-4] == MOST_SEEDS


def test_a_seed_that_misses_ends_the_search_for_precision() -> None:
    def steps(key: Key, settings: dict[str, float], seed: int) -> float:
        return 1e9 if key.repeat == CHOOSING + 1 else steps_of(key, settings, seed)

    declaration = make_declaration(("sgd",), sizes=(64,), trials=8, seeds=4, precision=1e-3)
    kept = finish(declaration, World(steps))
    (result,) = guided_results(declaration, kept)
    assert (len(result.repeats), result.complete) == (LEAST_SEEDS, True)
    given_up = "1 given up at 4 times the fewest steps"
    assert result.flags == (f"1 of {LEAST_SEEDS} seeds did not reach the target, {given_up}",)
    assert result.reported is not None
    assert result.reported.interval is not None
    assert result.reported.interval.high is None


def test_what_followed_from_a_failed_trial_is_run_again_with_it() -> None:
    declaration = make_declaration(("sgd", "momentum"), sizes=(64,), trials=8, seeds=2)
    guided = Guided(declaration, finish(declaration, World(steps_of)))
    search = Key("sgd", 64, guided.rounds("sgd")[0])  # of the second round
    void = guided.following({search})
    assert {key.optimizer for key in void} == {"sgd", "momentum"}
    kept = [key for key in guided.trials if key not in void]
    assert all(key.number < FINALIST and guided.round_of(key) <= 1 for key in kept)
    chosen = guided.chosen(search.cell)
    assert chosen is not None
    final = Key("sgd", 64, chosen.number, 1)
    assert guided.following({final}) == {trial.key for trial in guided.reports(search.cell)}
    assert not guided.following({final._replace(repeat=CHOOSING + 1)})


def test_endless_seeds_go_to_the_widest_interval() -> None:
    def steps(key: Key, settings: dict[str, float], seed: int) -> float:
        return steps_of(key, settings, seed, noise=0.3 if key.batch_size == 8 else 0.02)

    declaration = make_declaration(("sgd",), trials=8, seeds=3)
    queue = make_queue(declaration, endless=True)
    kept = drive(queue, World(steps), workers=3, most=2 * (8 + 6 + 3) + 20)
    guided = Guided(declaration, kept)
    assert all(guided.complete(cell) for cell in declaration.cells)
    counts = {cell.batch_size: len(guided.reports(cell)) for cell in declaration.cells}
    assert counts[64] <= 8  # it scatters little, which three seeds cannot say by themselves
    assert counts[8] >= 16
    more = make_queue(declaration, kept, endless=True)
    tasks = [more.take() for _ in range(4)]
    assert len({task.key for task in tasks if task is not None}) == 4


def test_seeds_that_agree_by_chance_do_not_make_a_cell_sure() -> None:
    def reports(size: int, steps: tuple[int, ...]) -> list[Trial]:
        keys = [Key("sgd", size, FINALIST, CHOOSING + 1 + place) for place in range(len(steps))]
        return [Trial(key, {}, {}, 0, "reached", taken, taken) for key, taken in zip(keys, steps, strict=True)]

    cells = [reports(8, (100, 100)), reports(16, (80, 125, 100)), reports(32, (80, 125, 100, 80, 125, 100))]
    lucky, few, many = shared_half_widths(cells)
    assert lucky > many  # by its own scatter it would be 0
    assert few > many
    logs = [[math.log(trial.steps or 0) for trial in cell] for cell in cells]
    shared = sum(sum((log - fmean(cell)) ** 2 for log in cell) for cell in logs) / (1 + 2 + 5)
    assert lucky == pytest.approx(stats.t.ppf(0.95, 4 + 1) * math.sqrt(4 * shared / (4 + 1) / 2))
    assert shared_half_widths([]) == []


def test_endless_seeds_go_on_where_one_has_missed_the_target() -> None:
    """Four times the fewest steps, at which it is given up, are far from what the others take."""

    def steps(key: Key, settings: dict[str, float], seed: int) -> float:
        missed = key.batch_size == 8 and key.repeat == CHOOSING + 1
        return 1e9 if missed else steps_of(key, settings, seed, noise=0.02)

    declaration = make_declaration(("sgd",), trials=8, seeds=3)
    kept = drive(make_queue(declaration, endless=True), World(steps), most=2 * (8 + 6 + 3) + 20)
    guided = Guided(declaration, kept)
    counts = {cell.batch_size: len(guided.reports(cell)) for cell in declaration.cells}
    assert counts[8] >= 16 > 8 >= counts[64]


def test_endless_seeds_wait_until_nothing_else_is_open() -> None:
    declaration = make_declaration(("sgd", "adam"), sizes=(8,), trials=8, seeds=2)
    sgd = [trial for trial in finish(declaration) if trial.key.optimizer == "sgd"]
    task = make_queue(declaration, sgd, endless=True).take()
    assert task is not None
    assert task.key.optimizer == "adam"


def test_more_seeds_than_a_precision_may_take_can_be_asked_for() -> None:
    declaration = make_declaration(("sgd",), sizes=(64,), trials=4, seeds=MOST_SEEDS + 2)
    guided = Guided(declaration, finish(declaration))
    assert len(guided.reports(Cell("sgd", 64))) == MOST_SEEDS + 2
    assert guided.complete(Cell("sgd", 64))


# ---------------------------------------------------------------------------------------------
# What goes wrong
# ---------------------------------------------------------------------------------------------


def test_failed_trials_are_flagged_and_the_search_goes_on() -> None:
    world = World(fails=lambda key: key.number % 3 == 1 and key.number < FINALIST)
    kept = finish(DECLARATION, world, workers=2)
    for result in guided_results(DECLARATION, kept):
        assert result.complete
        assert result.reported is not None
        failed = sum(trial.status == "failed" for trial in result.members)
        assert result.flags[0] == f"{failed} trials failed, the first with: lost"
    again = [trial for trial in kept if trial.status != "failed"]
    renewed = drive(make_queue(DECLARATION, again), World())
    positions = {trial.key: trial.position for trial in again if trial.key.number >= FINALIST}
    assert all(result.complete for result in guided_results(DECLARATION, renewed))
    for trial in renewed:  # a finalist keeps its setting
        first = positions.get(trial.key._replace(repeat=1))
        assert first is None or trial.position == first


def test_a_cell_that_never_reaches_ends_without_a_winner() -> None:
    def steps(key: Key, settings: dict[str, float], seed: int) -> float:
        return 1e9 if key.batch_size == 8 else steps_of(key, settings, seed)

    kept = finish(DECLARATION, World(steps), workers=2)
    for result in guided_results(DECLARATION, kept):
        assert result.complete
        assert (result.winner is None) == (result.cell.batch_size == 8)
        assert ("no trial reached the target" in result.flags) == (result.cell.batch_size == 8)


def test_fresh_seeds_that_all_miss_are_no_result() -> None:
    def steps(key: Key, settings: dict[str, float], seed: int) -> float:
        return 1e9 if key.repeat else steps_of(key, settings, seed)

    for optimizers in (("sgd",), ("sgd", "sgd+ema")):
        declaration = make_declaration(optimizers, sizes=(64,), trials=8)
        for result in guided_results(declaration, finish(declaration, World(steps))):
            assert result.complete
            assert (result.winner, result.reported) == (None, None)
            assert result.flags == ("3 of 3 seeds did not reach the target, 3 given up at 4 times the fewest steps",)


def test_what_is_slower_than_what_it_contains_is_flagged() -> None:
    def steps(key: Key, settings: dict[str, float], seed: int) -> float:
        slow = key.optimizer == "momentum" and key.repeat > CHOOSING and key.batch_size == 8
        return (3 if slow else 1) * steps_of(key, settings, seed)

    flags = {result.cell: result.flags for result in guided_results(DECLARATION, finish(DECLARATION, World(steps)))}
    assert flags[Cell("momentum", 8)] == ("slower than sgd, which it contains",)
    assert flags[Cell("momentum", 64)] == flags[Cell("sgd", 8)] == ()


def test_sobol_has_no_fresh_seeds() -> None:
    with pytest.raises(ValueError, match="`seeds` is for guided search"):
        declare("digits", ["sgd"], search="sobol", seeds=3)


# ---------------------------------------------------------------------------------------------
# For real
# ---------------------------------------------------------------------------------------------


def test_a_sweep_of_digits(tmp_path: Path) -> None:
    here = replace(bl.find_workload("digits"), name="here")  # trained in this process, which has torch already
    arguments: dict[str, object] = {
        "batch_sizes": [128, 512], "trials": 5, "seeds": 2, "target": 0.4, "target_on": "train-loss", "max_steps": 150,
    }  # fmt: skip
    optimizers = ["sgd", "sgd+ema", "momentum"]
    store = tmp_path / "digits.sqlite"
    result = bl.run_sweep(here, optimizers, store=store, **arguments)  # type: ignore[arg-type]
    assert result.complete
    assert not store.with_name("digits.sqlite.runs").exists()
    assert all(cell.steps is not None and cell.interval is not None for cell in result.cells)
    for trial in (curve.cells[1].result.repeats[0] for curve in result.measured):
        record = bl.train(
            here, trial.key.optimizer, trial.key.batch_size, trial.settings, seed=trial.seed,
            max_steps=150, target=0.4, target_on="train-loss",
        )  # fmt: skip
        assert record.steps_interpolated == pytest.approx(trial.interpolated)
    again = bl.run_sweep(here, optimizers, store=store, **arguments)  # type: ignore[arg-type]
    assert again.summary is not None
    assert again.summary.ran == 0
    assert again.curves() == result.curves()


def test_no_trial_is_started_after_the_time_budget(tmp_path: Path) -> None:
    sweep = declare(replace(bl.find_workload("digits"), name="here"), ["sgd"], batch_sizes=[64], trials=2, max_steps=5)
    assert fill(sweep, tmp_path / "a", time_budget=1e-6).ran == 0
    assert not bl.read_sweep(tmp_path / "a").complete
    assert fill(sweep, tmp_path / "a", time_budget=60).ran == 2  # none reaches the target: nothing is left to do
    assert bl.read_sweep(tmp_path / "a").complete


# ---------------------------------------------------------------------------------------------
# What is shown
# ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(trials: list[Trial], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guided") / "guided.sqlite"
    with Store.open_to_write(path, DECLARATION) as writing:
        for trial in trials:
            writing.add(trial)
    return path


def test_document_has_means_seeds_and_the_minimum_of_the_search(store: Path) -> None:
    document = bl.read_sweep(store).as_document()
    assert (document["search"], document["interval_level"], document["complete"]) == ("guided", 0.9, True)
    for curve in document["curves"]:
        for point in curve["points"]:
            low, high = point["interval"]
            assert low < point["steps"] < high
            assert point["steps"] == pytest.approx(math.exp(fmean(map(math.log, point["seeds"]))))
            assert point["search_steps"] > 0
            assert point["runs"] > len(point["seeds"])


def test_page_is_true_for_guided_stores(store: Path, tmp_path: Path) -> None:
    page = bl.write_report(store, tmp_path / "page").read_text(encoding="utf-8")
    for words in (
        "90% interval",
        "geometric mean",
        "Search minimum",
        "a training loss of 0.1",
        "seeds behind the means",
    ):
        assert words in page
    assert "How much the number of trials matters" not in page
    assert "from resampling" not in page
    frame = bl.read_sweep(store).to_frame()
    assert {"search_steps", "weights", "low", "high"} <= set(frame.columns)
    assert (frame["low"] < frame["steps"]).all()


def test_table_shows_means_and_intervals(store: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, err = run(f"report {store} --out {tmp_path / 'page'}", capsys)
    assert (status, err) == (0, "")
    assert "digits (laptop): steps of fresh seeds to a training loss of 0.1" in out
    for words in ("90%", "search", "window 0.1"):
        assert words in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--precision much", "--precision must be a number, got much."),
        ("--precision x%", "--precision must be such as 5% or 0.05, got x%."),
        ("--precision 0%", "--precision must be in (0, 1), got 0.0."),
        ("--precision 5", "--precision must be in (0, 1), got 5.0."),
        ("--seeds 0", "--seeds must be at least 1, got 0."),
        ("--time-budget soon", "--time-budget must be such as 90s, 20m or 3h, got soon."),
        ("--time-budget 0m", "--time-budget must be finite and above 0, got 0.0."),
        ("--search sobol --precision 5%", "--precision needs guided search."),
        ("--search sobol --seeds 3", "--seeds is for guided search; sobol trains its winners again with --repeats."),
        ("--search random", "Invalid value for '--search'"),
        ("--repeats 1", "--repeats is for sobol; guided search reports --seeds fresh ones."),
        ("--shard 1/2", "--shard must be one of at most 1, got 1/2: "),
        ("--also-targets loss", "--also-targets must be such as train-loss:0.3"),
    ],
)
def test_bad_options(capsys: pytest.CaptureFixture[str], tmp_path: Path, options: str, message: str) -> None:
    command = f"sweep digits --optimizers sgd --batch-sizes 64 --store {tmp_path / 'a.sqlite'} {options}"
    status, out, err = run(command, capsys)
    assert (status, out) == (2, "")
    assert err.startswith(f"batchlens: {message}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [(PART, "5%", 0.05), (PART, "0.05", 0.05), (DURATION, "90s", 90), (DURATION, "20m", 1200), (DURATION, "3h", 10800),
     (DURATION, "90", 90)],
)  # fmt: skip
def test_parts_and_durations(kind: Number, text: str, value: float) -> None:
    assert kind.convert(text, None, None) == pytest.approx(value)


def test_live_table_shows_how_uncertain_steps_are() -> None:
    cell = CellProgress(Cell("sgd", 8), 10, 10, 34.06, True, 0.0423)
    assert str(_best(cell)) == "34.1 ±4%"
    assert str(_best(replace(cell, uncertainty=None, best_steps=1234))) == "1,234"
