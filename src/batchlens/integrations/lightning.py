"""Lightning: `Trainer(callbacks=[BatchlensCallback("runs/b256.jsonl")])` writes a file that `batchlens fit` reads."""

import os
from pathlib import Path
from typing import Any

from batchlens.integrations._recording import Recording, not_installed

try:
    from lightning.pytorch import Callback as _Callback
    from lightning.pytorch.loggers import Logger as _Logger
except ImportError:
    try:
        from pytorch_lightning import Callback as _Callback
        from pytorch_lightning.loggers import Logger as _Logger
    except ImportError:
        _Callback = _Logger = None


class BatchlensCallback(_Callback or object):  # type: ignore[misc]
    """Writes a `Monitor`'s file of a Lightning run: what it is, and every metric that goes to the loggers.

    Batch size, accumulation, world size and the first optimizer with its settings are the trainer's, the seed is that
    of `seed_everything`.  A record's step is the trainer's `global_step`.

    Arguments:
        path: the file, one for each run.
        batch_size: examples in one backward pass of one process; by default as the training data loader says.
        noise_scale: whether to measure the gradient noise scale as well, with `NoiseScale`; not with precision
            "16-mixed", whose gradients Lightning unscales before it calls anyone.
        resume: whether to go on with the file where there is one, as a `Monitor` does.
        settings: whatever else tells this run from others.

    >>> callback = BatchlensCallback("runs/b256.jsonl")  # doctest: +SKIP
    >>> Trainer(callbacks=[callback]).fit(module, loader)  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | Path,
        *,
        batch_size: int | None = None,
        noise_scale: bool = False,
        resume: bool = False,
        **settings: Any,
    ) -> None:
        if _Callback is None:
            raise not_installed("lightning")
        super().__init__()
        self._noise_scale = noise_scale
        self._batch_size = batch_size
        self._recording = Recording(path, noise_scale, resume, settings)
        self._logger: Any = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins the file. As a logger beside the others, it gets what they get when they get it."""
        if self._noise_scale and getattr(trainer.precision_plugin, "scaler", None) is not None:
            raise ValueError(
                "`noise_scale` needs gradients as backward() leaves them, and this Trainer unscales them first: use "
                f'precision "bf16-mixed" or "32-true", got "{trainer.precision}".'
            )
        seed = os.environ.get("PL_GLOBAL_SEED")
        run: dict[str, Any] = {"seed": int(seed)} if seed else {}
        self._recording.begin(
            trainer.strategy.model or pl_module,  # the DistributedDataParallel one where there is one
            trainer.is_global_zero,
            batch_size=self._batch_size if self._batch_size is not None else _batch_size(trainer.train_dataloader),
            accumulation=trainer.accumulate_grad_batches,
            world_size=trainer.world_size,
            optimizer=trainer.optimizers[0] if trainer.optimizers else "",
            **run,
        )
        self._logger = _Beside(trainer, self._recording)
        trainer.loggers = [*trainer.loggers, self._logger]

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        """Lightning clips after this."""
        self._recording.observe()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends the file."""
        self._end(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends the file."""
        self._end(trainer)

    def _end(self, trainer: Any) -> None:
        self._recording.end()
        trainer.loggers = [logger for logger in trainer.loggers if logger is not self._logger]


class _Beside(_Logger or object):  # type: ignore[misc]
    """A logger that hands on what it gets."""

    name = "batchlens"
    version = ""

    def __init__(self, trainer: Any, recording: Recording) -> None:
        super().__init__()
        self._trainer = trainer
        self._recording = recording

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._recording.log(self._trainer.global_step, metrics)

    def log_hyperparams(self, *_: Any, **__: Any) -> None:
        pass


def _batch_size(loader: Any) -> int:
    for holder in (loader, getattr(loader, "batch_sampler", None)):
        if isinstance(size := getattr(holder, "batch_size", None), int):
            return size
    raise ValueError(f"`batch_size` must be given to the callback: {type(loader).__name__} does not say it.")
