"""Hugging Face: `Trainer(..., callbacks=[BatchlensCallback("runs/b256.jsonl")])` writes a file for `batchlens fit`."""

from importlib import import_module
from pathlib import Path
from typing import Any

from batchlens.integrations._recording import Recording, not_installed

try:
    from transformers import TrainerCallback as _Callback
except ImportError:
    _Callback = None


class BatchlensCallback(_Callback or object):  # type: ignore[misc]
    """Writes a `Monitor`'s file of a Hugging Face run: what it is, and every metric that the Trainer logs.

    Batch size, accumulation, world size, the seed and the optimizer with its settings are the Trainer's.

    Arguments:
        path: the file, one for each run.
        noise_scale: whether to measure the gradient noise scale as well, with `NoiseScale`; as the Trainer clips
            gradients before it calls anyone, only with max_grad_norm=0 and without loss scaling (fp16).
        resume: whether to go on with the file where there is one, as a `Monitor` does.
        settings: whatever else tells this run from others.

    >>> callback = BatchlensCallback("runs/b256.jsonl")  # doctest: +SKIP
    >>> Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()  # doctest: +SKIP
    """

    def __init__(self, path: str | Path, *, noise_scale: bool = False, resume: bool = False, **settings: Any) -> None:
        if _Callback is None:
            raise not_installed("transformers")
        super().__init__()
        self._noise_scale = noise_scale
        self._recording = Recording(path, noise_scale, resume, settings)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Begins the file."""
        if self._noise_scale and args.max_grad_norm:
            raise ValueError(
                f"`noise_scale` needs gradients that are not clipped yet, and this Trainer clips them first: set "
                f"max_grad_norm=0, got {args.max_grad_norm}."
            )
        if self._noise_scale and args.n_gpu > 1:
            raise ValueError(
                "`noise_scale` cannot see the copies of the model that DataParallel makes: start the training with "
                "torchrun, one process for each device."
            )
        optimizer = given.get("optimizer")
        if self._noise_scale and getattr(optimizer, "scaler", None) is not None:
            raise ValueError(
                "`noise_scale` needs gradients as backward() leaves them, and with fp16 this Trainer unscales them "
                "first: set bf16=True or train in single precision."
            )
        self._recording.begin(
            given.get("model"),
            state.is_world_process_zero,
            {"process_group": _group(args)} if self._noise_scale else None,
            batch_size=state.train_batch_size or args.train_batch_size,
            accumulation=args.gradient_accumulation_steps,
            world_size=args.world_size,
            optimizer=getattr(optimizer, "optimizer", optimizer) or args.optim,  # inside that of accelerate
            seed=args.seed,
        )

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """With the gradients of the whole batch."""
        self._recording.observe()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **given: Any) -> None:
        """Hands on what the Trainer logs."""
        self._recording.log(state.global_step, logs or {})

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Ends the file."""
        self._recording.end()


def _group(args: Any) -> Any:
    """Whose gradients are averaged: a callback is given the model inside the DistributedDataParallel one."""
    return import_module("torch.distributed").group.WORLD if args.world_size > 1 else None
