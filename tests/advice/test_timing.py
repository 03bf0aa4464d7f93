"""Step times: the line through them, files, and real steps."""

import json
from pathlib import Path

import numpy as np
import pytest

import batchlens as bl
from batchlens.advice import timing
from batchlens.advice._memory import limited_memory, says_out_of_memory


def seconds(size: float, devices: int = 1) -> float:
    return 0.02 + size / devices / 5000 + 0.03 * 2 * (devices - 1) / devices


def test_exact_times_give_their_line_back() -> None:
    places = [(size, count) for size in (64, 512, 4096) for count in (1, 2, 8)]
    times = bl.StepTimes([size for size, _ in places], [seconds(*place) for place in places], [n for _, n in places])
    assert times.model == pytest.approx((0.02, 1 / 5000, 0.03), rel=1e-6)
    assert times.throughput == pytest.approx(5000)


def test_the_line_of_noisy_times_is_within_its_intervals() -> None:
    random = np.random.default_rng(0)
    sizes = [16.0 * 2**k for k in range(9)]
    hits = np.zeros(2)
    for _ in range(100):
        times = bl.StepTimes(sizes, [seconds(size) * np.exp(0.05 * random.standard_normal()) for size in sizes])
        for place, (name, truth) in enumerate((("overhead", 0.02), ("throughput", 5000.0))):
            low, high = times.intervals[name]
            hits[place] += low <= truth <= high
    assert (hits >= 85).all(), hits


def test_times_are_read_from_a_file_and_written_as_one(tmp_path: Path) -> None:
    file = tmp_path / "times.csv"
    file.write_text("\ufeffBatch_Size, seconds,devices,note\n64,0.03,,x\n\n256,0.055,2,y\n", encoding="utf-8")
    times = bl.StepTimes.read(file)
    assert (times.batch_sizes, times.seconds, times.devices) == ((64.0, 256.0), (0.03, 0.055), (1, 2))
    times.to_frame().to_csv(file, index=False)
    assert bl.StepTimes.read(file).seconds == times.seconds


def test_the_largest_that_fits_survives_a_file(tmp_path: Path) -> None:
    file = tmp_path / "times.csv"
    bl.StepTimes([64, 256], [0.03, 0.05], largest=300).to_frame().to_csv(file, index=False)
    assert bl.StepTimes.read(file).largest == 300


def test_one_number_of_devices_does_not_tell_synchronisation_from_overhead() -> None:
    times = bl.StepTimes([64, 512], [seconds(64, 4), seconds(512, 4)], [4, 4])
    assert not times.knows_synchronisation
    assert times.model == pytest.approx((0.02 + 0.03 * 1.5, 1 / 5000, 0.0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must begin with a line that names batch_size and seconds, got nothing"),
        ("batch_size,time\n1,2\n", "must begin with a line that names seconds, got batch_size, time"),
        ("batch_size;seconds\n64;0,1\n", "got batch_size;seconds. Separate columns by commas"),
        ("batch_size,seconds,largest\n64,1,0\n", "line 2: `largest` must be a whole number from 1 on, got 0"),
        ("batch_size,seconds\n64,fast\n", "line 2: `seconds` must be finite and above 0, got fast"),
        ("batch_size,seconds\n64,0\n", "line 2: `seconds` must be finite and above 0, got 0"),
        ("batch_size,seconds,devices\n64,1,1.5\n", "line 2: `devices` must be a whole number from 1 on, got 1.5"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "times.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(bl.BatchlensError, match=message):
        bl.StepTimes.read(file)


def test_times_that_do_not_grow_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"must grow with the batch size, got 0.2 s at 16 and 0.1 s at 64. Time larger"
    ):
        bl.StepTimes([16, 64], [0.2, 0.1])
    with pytest.raises(ValueError, match="`step_times` must have at least two batch sizes of a device, got 16"):
        bl.StepTimes([16, 16], [0.1, 0.1])
    with pytest.raises(ValueError, match="`step_times` must have at least two batch sizes of a device, got none"):
        bl.StepTimes([], [])


def test_results_have_their_shapes() -> None:
    times = bl.StepTimes([64, 128, 256, 512], [0.012, 0.014, 0.018, 0.026], what="mine", largest=600)
    document = json.loads(json.dumps(times.as_document()))
    assert document["overhead"]["value"] == pytest.approx(0.01)
    assert document["largest"] == 600
    assert "mine: 0.01 s a step plus 1 s for 32,000 examples; at most 600 examples fit" in repr(times)
    assert times.plot().get_ylabel() == "seconds a step"


def test_the_words_of_running_out_of_memory_are_known() -> None:
    assert says_out_of_memory("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    assert not says_out_of_memory("RuntimeError: shapes cannot be multiplied")


def test_memory_can_be_limited_for_a_while() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    with limited_memory(64e6), pytest.raises(MemoryError):
        bytearray(2**30)
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert len(bytearray(2**28)) == 2**28


def test_real_steps_are_timed() -> None:
    told: list[tuple[int, int, str]] = []
    times = bl.time_steps("digits", [8, 512, 8192], "adam", steps=5, progress=lambda *now: told.append(now))
    assert times.batch_sizes == (8.0, 512.0, 8192.0)
    assert times.largest is None
    assert told[-1] == (3, 3, "batch size 8,192")


def test_the_largest_batch_that_fits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps are made up: 3,000 examples fit, each takes a millisecond."""
    monkeypatch.setattr(timing, "_time", lambda *given: [0.01 + given[2] / 1000] if given[2] <= 3000 else None)
    found = bl.time_steps("digits", [64, 1024, 2**18], steps=1)
    assert found.largest is not None
    assert 3000 * (1 - 1 / 16) <= found.largest <= 3000
    assert found.batch_sizes == (64.0, 1024.0)
    with pytest.raises(bl.BatchlensError, match="two batch sizes must fit into memory, got at most 2,"):
        bl.time_steps("digits", [64, 2**18], steps=1)


def test_a_real_step_that_does_not_fit_is_told_from_one_that_does() -> None:
    pytest.importorskip("resource")
    settings = {"learning_rate": 1e-6}
    assert timing._time("digits", "sgd", 2**18, settings, 1, 60e6, None, {}) is None
    assert timing._time("digits", "sgd", 64, settings, 2, 2e9, None, {}) is not None


def test_one_batch_size_cannot_tell_overhead_from_throughput() -> None:
    with pytest.raises(ValueError, match="`batch_sizes` must be at least two, to tell overhead from throughput, got 1"):
        bl.time_steps("digits", [64, 64])


def test_steps_that_fail_for_another_reason_say_so() -> None:
    with pytest.raises(ValueError, match="`settings` of momentum must be among"):
        bl.time_steps("digits", [8, 16], settings={"beta2": 0.9})
