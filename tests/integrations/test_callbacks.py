"""Both callbacks in the real trainers of Lightning and Hugging Face: make integrations."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import batchlens as bl
from batchlens.scaling._logs.measuring import Question
from batchlens.scaling._runs import collect_runs

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]

SIZES = (16, 64, 256)


@pytest.fixture(autouse=True)
def nobody_elses_seed() -> Iterator[None]:
    yield
    os.environ.pop("PL_GLOBAL_SEED", None)


def data() -> Any:
    """Four classes that a linear model tells apart."""
    import torch

    torch.set_num_threads(1)  # so little work is quickest on one
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(1024, 8, generator=generator)
    labels = (points @ torch.randn(8, 4, generator=generator)).argmax(1)
    return torch.utils.data.TensorDataset(points, labels)


def fit_lightning(folder: Path, size: int, trainer_arguments: dict[str, Any] | None = None, **callback: Any) -> Any:
    import torch

    lightning = pytest.importorskip("lightning.pytorch")
    loggers = import_module("lightning.pytorch.loggers")
    callbacks = import_module("batchlens.integrations.lightning")
    entropy = torch.nn.functional.cross_entropy

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self, batch_size: int, learning_rate: float) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = torch.nn.Linear(8, 4)

        def training_step(self, batch: Any, _: int) -> Any:
            loss = entropy(self.net(batch[0]), batch[1])
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val_loss", entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=self.hparams.learning_rate, momentum=0.9)

    lightning.seed_everything(3)
    trainer = lightning.Trainer(
        **{
            "max_epochs": 20,
            "accumulate_grad_batches": 2,
            "val_check_interval": max(1024 // size // 4, 2),  # after whole steps
            "gradient_clip_val": 1.0,
            "log_every_n_steps": 1,
            "logger": [
                loggers.CSVLogger(folder / "csv", name="", version=f"b{size}"),
                loggers.TensorBoardLogger(folder / "events", name="", version=f"b{size}"),
            ],
            "callbacks": [callbacks.BatchlensCallback(folder / "runs" / f"b{size}.jsonl", **callback)],
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "enable_checkpointing": False,
        }
        | (trainer_arguments or {})
    )
    loaders = (torch.utils.data.DataLoader(data(), size, shuffle=True), torch.utils.data.DataLoader(data(), 1024))
    trainer.fit(Module(size, 0.02), *loaders)
    return trainer


def train_hugging_face(folder: Path, size: int, callback: dict[str, Any], **arguments: Any) -> Any:
    import torch

    transformers = pytest.importorskip("transformers")
    callbacks = import_module("batchlens.integrations.transformers")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(8, 4)

        def forward(self, points: Any, labels: Any) -> dict[str, Any]:
            logits = self.net(points)
            return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}

    examples = [{"points": points, "labels": label} for points, label in data()]
    transformers.set_seed(3)
    trainer = transformers.Trainer(
        Model(),
        transformers.TrainingArguments(
            **{
                "output_dir": str(folder / "out" / f"b{2 * size}"),
                "per_device_train_batch_size": size,
                "per_device_eval_batch_size": 1024,
                "gradient_accumulation_steps": 2,
                "num_train_epochs": 10,
                "learning_rate": 0.1,
                "warmup_steps": 2,
                "logging_steps": 1,
                "eval_strategy": "steps",
                "eval_steps": 1 if size > 100 else 4,
                "save_strategy": "epoch",
                "save_only_model": True,
                "report_to": ["tensorboard"],
                "seed": 3,
                "use_cpu": True,
                "disable_tqdm": True,
            }
            | arguments
        ),
        train_dataset=examples,
        eval_dataset=examples,
        callbacks=[callbacks.BatchlensCallback(folder / "runs" / f"b{2 * size}.jsonl", **callback)],
    )
    trainer.train()
    trainer.evaluate()  # after the run: no part of it
    return trainer


def steps_of(source: Path, **question: Any) -> dict[float, float | None]:
    return {run.batch_size: run.steps for run in collect_runs(source, Question(**question)).runs}


def test_a_lightning_trainer_writes_a_file_that_fit_reads(tmp_path: Path) -> None:
    for size in SIZES:
        trainer = fit_lightning(tmp_path, size, dropout=0.5)
        assert len(trainer.loggers) == 2
    lines = [json.loads(line) for line in (tmp_path / "runs/b64.jsonl").read_text().splitlines()]
    run, records = lines[0], lines[1:]
    assert (run["batch_size"], run["accumulation"], run["world_size"], run["effective_batch_size"]) == (64, 2, 1, 128)
    assert run["optimizer"] == "momentum"
    wanted = {"learning_rate": 0.02, "momentum": 0.9, "seed": 3, "dropout": 0.5}
    assert wanted.items() <= run["settings"].items()
    assert run["versions"].keys() >= {"batchlens", "torch", "lightning"}
    assert records[-1]["step"] == trainer_steps(64)
    found = bl.fit(tmp_path / "runs/*.jsonl", metric="val_loss", target=0.6)
    (fitted,) = found
    assert (fitted.optimizer, fitted.curve.batch_sizes) == ("momentum", (32, 128, 512))
    assert fitted.reached == (1, 1, 1)
    assert None not in fitted.seconds
    steps = [count or 0 for count in fitted.curve.steps]
    assert steps[0] > steps[1] > steps[2] > 0


def trainer_steps(size: int) -> int:
    return 20 * 1024 // size // 2


def test_lightnings_own_logs_give_the_steps_that_the_callback_gives(tmp_path: Path) -> None:
    for size in SIZES:
        fit_lightning(tmp_path, size)
    question = {"metric": "val_loss", "target": 0.6}
    wanted = steps_of(tmp_path / "runs", batch_size_from=r"b(\d+)\.jsonl", **question)
    assert None not in wanted.values()
    assert steps_of(tmp_path / "csv", **question) == pytest.approx(wanted)
    assert steps_of(tmp_path / "events", **question) == pytest.approx(wanted, rel=1e-4)  # float32


def test_a_hugging_face_trainer_writes_a_file_that_fit_reads(tmp_path: Path) -> None:
    for size in SIZES:
        train_hugging_face(tmp_path, size, {"dropout": 0.5})
    lines = [json.loads(line) for line in (tmp_path / "runs/b128.jsonl").read_text().splitlines()]
    run, records = lines[0], lines[1:]
    assert (run["batch_size"], run["accumulation"], run["world_size"], run["effective_batch_size"]) == (64, 2, 1, 128)
    assert run["optimizer"] == "adamw"
    assert {"learning_rate": 0.1, "betas_0": 0.9, "seed": 3, "dropout": 0.5}.items() <= run["settings"].items()
    assert records[-1]["step"] == 10 * 1024 // 128
    question = {"metric": "eval_loss", "target": 0.8}
    found = bl.fit(tmp_path / "runs/*.jsonl", **question)  # type: ignore[arg-type]
    (fitted,) = found
    assert (fitted.optimizer, fitted.curve.batch_sizes) == ("adamw", (32, 128, 512))
    assert fitted.reached == (1, 1, 1)
    wanted = steps_of(tmp_path / "runs", **question)
    named = {"batch_size_from": r"/b(\d+)/", **question}
    assert steps_of(tmp_path / "out", **named) == pytest.approx(wanted)
    assert steps_of(tmp_path / "out/*/runs/*", **named) == pytest.approx(wanted, rel=1e-4)  # float32


def test_a_batch_size_that_lightning_does_not_know_must_be_given(tmp_path: Path) -> None:
    callbacks = pytest.importorskip("batchlens.integrations.lightning")
    with pytest.raises(ValueError, match="`batch_size` must be given to the callback: list does not say it"):
        callbacks._batch_size([1, 2])
    trainer = fit_lightning(tmp_path, 64, batch_size=7)
    assert trainer.global_step == trainer_steps(64)
    assert json.loads((tmp_path / "runs/b64.jsonl").read_text().split("\n")[0])["effective_batch_size"] == 14


def test_a_run_that_fails_leaves_its_records(tmp_path: Path) -> None:
    fit_lightning(tmp_path, 64)
    with pytest.raises(bl.BatchlensError, match="a run is never overwritten"):
        fit_lightning(tmp_path, 64)
    assert bl.fit(tmp_path / "runs/b64.jsonl", metric="val_loss", target=0.6).fits[0].reached == (1,)


class Noise:
    """A NoiseScale that counts its steps."""

    def __init__(self, model: Any, **_: Any) -> None:
        self.model, self.steps = model, 0

    def step(self) -> None:
        assert any(weight.grad is not None for weight in self.model.parameters())
        self.steps += 1

    def estimate(self) -> "Noise":
        return self

    def as_document(self) -> dict[str, Any]:
        return {"steps": self.steps}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    monkeypatch.setitem(sys.modules, "batchlens.monitor.noise_scale", SimpleNamespace(NoiseScale=Noise))


@pytest.mark.usefixtures("counted")
def test_both_measure_the_noise_scale_at_every_step(tmp_path: Path) -> None:
    fit_lightning(tmp_path / "lightning", 64, noise_scale=True)
    train_hugging_face(tmp_path / "hugging_face", 64, {"noise_scale": True}, max_grad_norm=0.0)
    for path in (tmp_path / "lightning/runs/b64.jsonl", tmp_path / "hugging_face/runs/b128.jsonl"):
        for line in path.read_text().splitlines()[1:-1]:
            record = json.loads(line)
            assert record["noise"] == {"steps": record["step"]}


@pytest.mark.usefixtures("counted")
def test_gradients_that_are_clipped_already_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`noise_scale` needs gradients that are not clipped yet"):
        train_hugging_face(tmp_path, 64, {"noise_scale": True})


def noise_of(path: Path) -> dict[str, Any]:
    """What the last line says of the noise scale."""
    last = json.loads(path.read_text().splitlines()[-1])
    noise: dict[str, Any] = last["noise"]
    return noise


@pytest.mark.parametrize(("accumulation", "by"), [(1, "examples"), (2, "micro_batches")])
def test_lightning_measures_the_noise_scale_of_a_module_that_is_never_called(
    tmp_path: Path, accumulation: int, by: str
) -> None:
    trainer = fit_lightning(tmp_path, 64, {"accumulate_grad_batches": accumulation}, noise_scale=True)
    noise = noise_of(tmp_path / "runs/b64.jsonl")
    assert (noise["by"], noise["steps"], noise["batch_size"]) == (by, trainer.global_step - 1, 64 * accumulation)
    assert noise["interval"] is not None


@pytest.mark.parametrize(("accumulation", "by"), [(1, "examples"), (2, "micro_batches")])
def test_hugging_face_measures_the_noise_scale(tmp_path: Path, accumulation: int, by: str) -> None:
    trainer = train_hugging_face(
        tmp_path, 64, {"noise_scale": True}, max_grad_norm=0.0, gradient_accumulation_steps=accumulation
    )
    noise = noise_of(tmp_path / "runs/b128.jsonl")
    steps = trainer.state.global_step - 1
    assert (noise["by"], noise["steps"], noise["batch_size"]) == (by, steps, 64 * accumulation)
    assert noise["interval"] is not None


def test_gradients_that_lightning_unscales_are_refused_at_the_start(tmp_path: Path) -> None:
    import torch

    plugins = pytest.importorskip("lightning.pytorch.plugins")
    plugin = plugins.MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", enabled=False))
    with pytest.raises(ValueError, match=r"this Trainer unscales them first: use precision .* got .16-mixed.\."):
        fit_lightning(tmp_path, 64, {"plugins": [plugin]}, noise_scale=True)
    assert not (tmp_path / "runs/b64.jsonl").exists()


LIGHTNING_RANKS = """
import sys
from pathlib import Path
from tests.integrations.test_callbacks import fit_lightning
if __name__ == "__main__":
    arguments = {"accumulate_grad_batches": 1, "devices": 2, "strategy": "ddp", "max_epochs": 2, "logger": False}
    fit_lightning(Path(sys.argv[1]), 64, arguments, noise_scale=True)
"""


def test_lightning_measures_the_noise_scale_on_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("lightning.pytorch")
    script = tmp_path / "script.py"
    script.write_text(LIGHTNING_RANKS)
    run_script([str(script), str(tmp_path)])
    noise = noise_of(tmp_path / "runs/b64.jsonl")
    assert (noise["by"], noise["batch_size"]) == ("micro_batches", 128)
    assert noise["interval"] is not None


HUGGING_FACE_RANKS = """
import sys
from pathlib import Path
from tests.integrations.test_callbacks import train_hugging_face
arguments = {"max_grad_norm": 0.0, "num_train_epochs": 2, "gradient_accumulation_steps": 1, "save_strategy": "no"}
train_hugging_face(Path(sys.argv[1]), 64, {"noise_scale": True}, report_to=[], **arguments)
"""


def test_hugging_face_measures_the_noise_scale_on_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    script = tmp_path / "script.py"
    script.write_text(HUGGING_FACE_RANKS)
    run_script(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script), str(tmp_path)])
    noise = noise_of(tmp_path / "runs/b128.jsonl")
    assert (noise["by"], noise["batch_size"]) == ("micro_batches", 128)
    assert noise["interval"] is not None


def run_script(arguments: list[str]) -> None:
    root = Path(__file__).parents[2]
    paths = [str(root), str(root / "src")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_gradients_that_hugging_face_unscales_are_refused_at_the_start(tmp_path: Path) -> None:
    from types import SimpleNamespace

    callbacks = pytest.importorskip("batchlens.integrations.transformers")
    arguments = SimpleNamespace(max_grad_norm=0.0, n_gpu=0)
    callback = callbacks.BatchlensCallback(tmp_path / "run.jsonl", noise_scale=True)
    with pytest.raises(ValueError, match="with fp16 this Trainer unscales them first"):
        callback.on_train_begin(arguments, None, None, optimizer=SimpleNamespace(scaler=object()))
