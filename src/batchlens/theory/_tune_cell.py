"""The fewest steps in which some rule of a cell reaches a target, and that rule."""

from dataclasses import replace

from batchlens._arrays import FloatArray
from batchlens.theory._cells import FINE, Cell, best_at, mix
from batchlens.theory._search import RESOLUTION, excess_of, fewest_steps
from batchlens.theory.hitting import hitting_time

# Up to this number of steps, each is looked at by itself.
_FEW = 12
# Problems of more coordinates are searched through this number of bins.
LARGE, BINS = 20_000, 2_000

Found = tuple[int, FloatArray]


def tune_cell(cell: Cell, target: float, least: int, max_steps: int) -> Found | None:
    """Fewest steps and the point that takes them; no number of steps up to `least` can do."""
    found = _tune_through_bins(cell, target, least, max_steps) if cell.problem.curvature.size > LARGE else None
    return found or _tune(cell, target, least, max_steps)


def _tune_through_bins(cell: Cell, target: float, least: int, max_steps: int) -> Found | None:
    """What a search over bins finds, followed on the problem itself until one step fewer does not do; None where the
    problem itself does not bear it out."""
    binned = replace(cell, problem=cell.problem.binned(BINS))
    seen = _tune(binned, target, least, max_steps)
    if seen is None:
        return None
    found = _confirm(cell, target, seen[0], cell.point(binned.rule(seen[1])))
    while found is not None:
        fewer = found[0] - 1 - int(found[0] * RESOLUTION)
        better = cell.refine([found[1]], fewer)[0] if fewer > least else None
        if better is None or better.risk > target:
            break
        found = _confirm(cell, target, fewer, better.point)
    return found if found is None or found[0] <= max_steps else None


def _tune(cell: Cell, target: float, least: int, max_steps: int) -> Found | None:
    """`tune_cell` on the problem as it is."""
    inner = [_tune(contained, target, least, max_steps) for contained in cell.contained]
    known = [result for result in inner if result is not None]
    if known:
        steps = min(result[0] for result in known)
        seeds = mix([result[1] for result in sorted(known, key=lambda result: result[0])])
    else:
        start = _first_success(cell, target, least, max_steps)
        if start is None:
            return None
        least, steps, point = start
        seeds = [point]
    seeds += [basin.point for basin in cell.survey(steps)]
    while True:
        steps, point = _shrink(cell, target, least, steps, seeds)
        # Was a better basin missed?  Then go on from there.
        fewer = steps - 1 - int(steps * RESOLUTION)
        if fewer <= least:
            break
        others = cell.survey(fewer)
        if point[1] > 0.0:
            others += cell.probe(point, fewer)
        seeds = [basin.point for basin in others if basin.risk <= target]
        if not seeds:
            break
        steps = fewer
    if steps <= _FEW:
        # As few steps as this may do where one more does not: look at each number.
        for fewer in range(least + 1, steps):
            best = best_at(cell, fewer)
            if best.risk <= target:
                steps, point = fewer, best.point
                break
    found = _confirm(cell, target, steps, point)
    return min([*known, *([found] if found else [])], key=lambda result: result[0], default=None)


def _first_success(cell: Cell, target: float, least: int, max_steps: int) -> tuple[int, int, FloatArray] | None:
    """A number of steps that does not do, a larger one that does, and the point at which it does."""
    steps = least + 1
    while True:
        steps = min(steps, max_steps)
        best = cell.survey(steps)[0] if steps < max_steps else best_at(cell, steps)
        if best.risk <= target:
            return least, steps, best.point
        if steps == max_steps:
            return None
        least, steps = steps, 4 * steps


def _shrink(cell: Cell, target: float, low: int, high: int, seeds: list[FloatArray]) -> tuple[int, FloatArray]:
    """The smallest number of steps that does, in (low, high], following the basins below the seeds."""
    basins = cell.refine(seeds, high)
    point = basins[0].point

    def excess(steps: int) -> float:
        nonlocal basins, point
        basins = cell.refine([basin.point for basin in basins], steps)
        if basins[0].risk <= target:
            point = basins[0].point
        return excess_of(basins[0].risk, target)

    return fewest_steps(excess, low, high, excess_of(basins[0].risk, target)), point


def _confirm(cell: Cell, target: float, steps: int, point: FloatArray) -> Found | None:
    """The exact first hit of the rule found; a step or two more where rounding let the search stop too early."""
    for _ in range(20):
        most = int(steps * (1 + RESOLUTION)) + 1
        exact = hitting_time(cell.problem, cell.rule(point), cell.batch_size, target, most).steps
        if exact is not None:
            return exact, point
        steps += 1 + int(steps * RESOLUTION)
        point = cell.descend(point, steps, (0.01, 0.01, 0.01), FINE / 100).point
    return None
