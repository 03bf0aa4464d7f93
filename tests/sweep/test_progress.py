from batchlens.sweep._declaration import Cell
from batchlens.sweep._progress import Meter
from tests.sweep.simulation import make_declaration, make_queue, make_trial, random_fates, simulate

CELL = Cell("sgd", 16)


def test_progress_follows_the_trials_that_end() -> None:
    queue = make_queue(make_declaration(trials=2))
    meter = Meter(queue)
    start = meter.measure(workers=1, ran=0, seconds=0.0)
    assert (start.ended, start.running, start.trials_left, start.seconds_left) == (0, 0, 4, None)
    assert [cell.cell.batch_size for cell in start.cells] == [16, 64]
    ended = []
    for steps in (9, 7):
        task = queue.take()
        assert task is not None
        queue.end(make_trial(task, "reached", steps))
        ended.append(task.key.cell)
        (progress,) = [cell for cell in meter.measure(1, 1, 1.0).cells if cell.cell == task.key.cell]
        assert progress.best_steps == steps
    assert ended[0] == ended[1]
    now = meter.measure(workers=2, ran=2, seconds=3.0)
    assert (now.cells_done, now.ended, now.trials_left, now.seconds_left) == (1, 2, 2, 0.0)


def test_sweep_that_is_complete_has_nothing_left() -> None:
    queue = make_queue(make_declaration(trials=5))
    simulate(queue, random_fates(3), workers=2, pruning=True)
    progress = Meter(queue).measure(workers=2, ran=0, seconds=1.0)
    assert (progress.cells_done, progress.trials_left, progress.seconds_left) == (2, 0, 0.0)
