"""A Ray cluster of two nodes on this machine, one of which is killed: make cluster."""

import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from batchlens.errors import BatchlensError
from batchlens.sweep._cells import cell_results
from batchlens.sweep._declare import declare
from batchlens.sweep._executors.ray_cluster import _fetch
from batchlens.sweep._filling import fill
from batchlens.sweep._progress import Progress
from batchlens.sweep._store import Store
from batchlens.sweep.results import read_sweep

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("ray")]

WORKLOAD = f"{Path(__file__).with_name('crash_workload.py')}:hostage"
SWEEPS = {
    search: declare(WORKLOAD, ["sgd", "momentum"], batch_sizes=[16, 64], trials=8, max_steps=2000, search=search)
    for search in ("sobol", "guided")
}


@pytest.fixture
def ray() -> None:
    pytest.importorskip("ray")


def outcome(path: Path) -> list[object]:
    with Store.open(path) as store:
        results = cell_results(store)
        keys = [trial.key for trial in store.read_trials()]
    assert all(result.complete for result in results)
    best = [[(trial.key, trial.steps) for trial in (result.winner, *result.runners_up, *result.repeats) if trial]
            for result in results]  # fmt: skip
    return [keys, best]


def test_missing_cluster_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BatchlensError, match="no Ray cluster at auto: ") as caught:
        fill(SWEEPS["sobol"], tmp_path / "ray.sqlite", ray="auto")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("search", SWEEPS)
def test_lost_node_costs_nothing_but_time(tmp_path: Path, search: str) -> None:
    cluster: Any = import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    node = cluster.add_node(num_cpus=1, env_vars={"HOSTAGES": str(tmp_path)})
    cluster.wait_for_nodes()
    killed = threading.Event()

    def kill_midway(progress: Progress) -> None:
        """While a trial runs there; those of a guided search have waited for one another by then."""
        if progress.ran >= 2:
            (tmp_path / "wanted").touch()
        if (tmp_path / "taken").exists() and not killed.is_set():
            killed.set()
            threading.Thread(target=lambda: cluster.remove_node(node, allow_graceful=False)).start()

    try:
        summary = fill(SWEEPS[search], tmp_path / "ray.sqlite", ray=cluster.address, watch=kill_midway)
    finally:
        cluster.shutdown()
    assert killed.is_set()
    result = read_sweep(tmp_path / "ray.sqlite")
    assert result.complete
    assert summary.failed == 0
    assert summary.retried > 0
    print(f"{result.ended} trials in {summary.seconds:.0f} s, {summary.retried} run again after the node was lost")
    fill(SWEEPS[search], tmp_path / "local.sqlite", workers=2)
    assert outcome(tmp_path / "ray.sqlite") == outcome(tmp_path / "local.sqlite")


def test_what_a_lost_node_has_saved_is_done_without() -> None:
    ray: Any = import_module("ray")
    cluster: Any = import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    node = cluster.add_node(num_cpus=1, resources={"there": 1})
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        size = 10_000_000  # smaller things are kept by whoever asked for them
        saved = ray.remote(resources={"there": 1}, max_retries=0)(lambda: bytes(size)).remote()
        ray.wait([saved], fetch_local=False)
        cluster.remove_node(node, allow_graceful=False)
        assert _fetch(saved) is None
        assert _fetch(ray.put(b"here")) == b"here"
        assert _fetch(None) is None
    finally:
        ray.shutdown()
        cluster.shutdown()
