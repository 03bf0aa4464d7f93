"""One run: its state, its steps, its evaluations, and what it leaves behind."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from batchlens._grid import PLAIN
from batchlens.kfac import CurvatureError
from batchlens.training._arguments import Arguments, versions
from batchlens.training._averages import LADDER, Average, Averaging, copy_into, tensors_of
from batchlens.training._checkpoint import load_checkpoint, save_checkpoint
from batchlens.training._evaluation import Evaluation, Evaluator, Status, best_exact
from batchlens.training._looking import Looks
from batchlens.training._recipes import Task
from batchlens.training._sampling import LABELS, MODEL, OTHER, Batches, Preparation, derive_seed
from batchlens.training._targets import metric_on
from batchlens.training.data.loading import Dataset
from batchlens.training.models._normalization import GHOST_SIZE
from batchlens.training.record import Record

# A run has diverged when the losses of this many batches in a row are above twice the initial loss.
DIVERGENCE_WINDOW = 50
# Examples on which the initial loss is measured.
_INITIAL_EXAMPLES = 256
# Training examples on which a target of the loss is measured, at most: runs to it are short.
_LOSS_EXAMPLES = 2_000
# Reading a loss makes an accelerator wait, so there the losses of this many steps are read at once.
_LOSSES_AT_A_TIME = 20
CHECKPOINT_SECONDS = 180.0
# A budget that shows every example more often than this asks for a larger data set.
MOST_PASSES = 1_000

# What ends a run from outside: "interrupted" at any step, the others at the next wide rung, wherever they are told.
Stop = Literal["pruned", "paused", "interrupted"]


class Interrupted(KeyboardInterrupt):
    """A run that was asked to stop; `checkpoint` is where it can be picked up, None where nothing was saved."""

    def __init__(self, step: int, checkpoint: Path | None) -> None:
        super().__init__(f"interrupted at step {step}")
        self.step, self.checkpoint = step, checkpoint


class Paused(Interrupted):
    """A run that is to wait for others; `record` is how it would have ended."""

    def __init__(self, step: int, checkpoint: Path | None, record: Record) -> None:
        super().__init__(step, checkpoint)
        self.record = record


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    step: int
    max_steps: int
    metric: str
    target: float
    latest: Evaluation | None


class _Clock:
    """Seconds of a run, and which of them evaluations took."""

    def __init__(self) -> None:
        self.earlier, self.evaluating, self.started = 0.0, 0.0, 0.0

    def start(self) -> None:
        self.started = time.perf_counter()

    @property
    def seconds(self) -> float:
        return self.earlier + time.perf_counter() - self.started

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.evaluating += time.perf_counter() - start


class _LossWatch:
    """Tells from the losses of the batches whether a run has diverged."""

    def __init__(self, device: torch.device) -> None:
        self.initial, self.last, self.high = math.inf, math.nan, 0
        self.unread: list[Tensor] = []
        self.at_a_time = 1 if device.type == "cpu" else _LOSSES_AT_A_TIME

    def diverges(self, loss: Tensor) -> str:
        """Why the run has diverged, or nothing."""
        self.unread.append(loss)
        return self.read() if len(self.unread) >= self.at_a_time else ""

    def read(self) -> str:
        """Looks at the losses that have come in."""
        values = [loss.item() for loss in self.unread]
        self.unread.clear()
        for value in values:
            self.last = value
            if not math.isfinite(value):
                return f"the training loss is {value}"
            self.high = self.high + 1 if value > 2 * self.initial else 0
            if self.high >= DIVERGENCE_WINDOW:
                return f"the training loss was above twice its initial value for {DIVERGENCE_WINDOW} steps on end"
        return ""


def _make_model(arguments: Arguments) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(arguments.seed, MODEL))
        model = arguments.workload.make_model()
    model.to(arguments.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model.train()


class Run:
    """The state of one run."""

    def __init__(self, arguments: Arguments, data: Dataset, checkpoint: Path | None) -> None:
        self.arguments, self.checkpoint, self.clock = arguments, checkpoint, _Clock()
        workload, recipe, settings = arguments.workload, arguments.recipe, arguments.settings
        self.model = _make_model(arguments)
        # Copies come before the optimizer, which may put hooks into the model.
        self.tensors = tensors_of(self.model)
        self.averages = _make_averages(arguments, self.model)
        self.shown = copy.deepcopy(self.model)
        prepare = Preparation(data, arguments.device)
        first = slice(0, _INITIAL_EXAMPLES)
        self.first = prepare.inputs(data.train.inputs[first]), prepare.targets(data.train.targets[first])
        self.losses = _LossWatch(arguments.device)
        self.looks = Looks(arguments, self._make_evaluators(data, prepare), self.averages, self._show)
        self.optimizer = recipe.build(
            self.model, settings, Task(workload.likelihood, derive_seed(arguments.seed, LABELS))
        )
        self.observe = getattr(self.optimizer, "observe", None)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]
        self.factor = arguments.learning_rate_factor()
        self.batches = Batches(
            data, arguments.batches, arguments.micro_batch, arguments.seed, workload.augment, arguments.device
        )
        self.identity = arguments.identity() | {
            "examples": [len(data.train), len(data.validation)],
            "shapes": [list(weight.shape) for weight in self.model.parameters()],
        }
        self.step = 0
        self.notes = tuple(_notes(arguments, len(data.train), getattr(self.optimizer, "unfactored", {})))

    def _initial_loss(self) -> float:
        loss = self.arguments.workload.loss
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            # In training mode, as are the losses it is compared with; on a copy, whose statistics do not matter.
            parts = zip(*(part.split(GHOST_SIZE) for part in self.first), strict=True)
            losses = [loss(self._outputs(inputs), targets).sum() for inputs, targets in parts]
            return float(sum(losses) / len(self.first[0]))

    def _outputs(self, inputs: Tensor) -> Tensor:
        """What the model says, if that is a tensor."""
        outputs: object = self.shown(inputs)
        if isinstance(outputs, Tensor):
            return outputs
        names = set(outputs) if isinstance(outputs, Mapping) else set(dir(outputs))
        has = " and ".join(name for name in ("logits", "loss") if name in names)
        raise TypeError(
            f"the model of {self.arguments.workload.name} must return a tensor of outputs, got a "
            f"{type(outputs).__name__}{f' with {has}' if has else ''}. Wrap it in a module that returns the outputs."
        )

    def _make_evaluators(self, data: Dataset, prepare: Preparation) -> dict[str, Evaluator]:
        """One for each place that a target is on."""
        arguments, most = self.arguments, self.arguments.workload.evaluation_examples
        evaluators: dict[str, Evaluator] = {}
        for on in dict.fromkeys(target.on for target in arguments.targets):
            split = data.validation if on == "validation" else data.train
            part = slice(0, min(most, _LOSS_EXAMPLES) if on == "train-loss" else most)
            inputs, targets = prepare.inputs(split.inputs[part]), prepare.targets(split.targets[part])
            evaluators[on] = Evaluator(inputs, targets, metric_on(arguments.workload, on), data.classes)
        return evaluators

    def go(self, watch: Callable[[Progress], None], stop: Callable[[int], Stop | None]) -> Record:
        """Trains until the target, the budget, divergence or a stop."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self.arguments.seed, OTHER))
            self._resume()
            self.clock.start()
            try:
                status, reason = self._train(watch, stop)
            except CurvatureError as error:
                status, reason = "diverged", str(error)
            except (MemoryError, RuntimeError) as error:
                status, reason = "failed", f"{type(error).__name__}: {error}".partition("\n")[0]
        if self.checkpoint is not None and status != "failed":  # what failed may be tried again from there
            self.checkpoint.unlink(missing_ok=True)
        return self._record(status, reason)

    def _train(self, watch: Callable[[Progress], None], stop: Callable[[int], Stop | None]) -> tuple[Status, str]:
        saved = time.perf_counter()
        if self.step == 0:
            self.losses.initial = self._initial_loss()
        while True:
            looked = self._look()
            if self.looks.is_nan and self.looks.found is None:
                return "diverged", "the metric is not a number"
            if self.looks.done:
                return "reached", ""
            reached = self.looks.found is not None  # and others are still to be met
            if self.step == self.arguments.max_steps:
                return "reached" if reached else "not_reached", ""
            match stop(self.step):
                case "pruned" if looked:
                    return "reached" if reached else "pruned", ""
                case "paused" if looked:
                    self._save()
                    raise Paused(self.step, self.checkpoint, self._record("pruned", ""))
                case "interrupted":
                    self._save()
                    raise Interrupted(self.step, self.checkpoint)
            if reason := self._take_step():
                return ("reached", "") if reached else ("diverged", reason)
            watch(self._progress())
            if time.perf_counter() - saved > CHECKPOINT_SECONDS:
                self._save()
                saved = time.perf_counter()

    def _take_step(self) -> str:
        """One update; says why the run has diverged, if it has."""
        arguments, optimizer = self.arguments, self.optimizer
        factor, examples = self.factor(self.step), arguments.batches.batch_size(self.step)
        for group, rate in zip(optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        optimizer.zero_grad()
        losses = []
        for inputs, targets in self.batches.slices(self.step):
            outputs = self.model(inputs)
            if self.observe is not None:
                self.observe(outputs)
            loss = arguments.workload.loss(outputs, targets).sum() / examples
            loss.backward()
            losses.append(loss.detach())
        if reason := self.losses.diverges(sum(losses[1:], losses[0])):
            return reason
        optimizer.step()
        if arguments.workload.constraint is not None:
            arguments.workload.constraint(self.model)
        self.step += 1
        for average in self.averages.values():
            average.update(self.step, self.tensors)
        return ""

    def _look(self) -> bool:
        """Measures the weights that count, where it is time to."""
        if not self.looks.due(self.step):
            return False
        with self.clock.evaluation():
            for average in self.averages.values():
                average.catch_up(self.tensors)
            weights = {PLAIN: self.tensors, **{name: average.tensors for name, average in self.averages.items()}}
            return self.looks.take(self.step, weights)

    def _show(self, tensors: Sequence[Tensor], name: str) -> nn.Module:
        """A model with these weights; where weights are constrained, those of an average are brought back."""
        copy_into(self.shown, tensors)
        if name != PLAIN and self.arguments.workload.constraint is not None:
            self.arguments.workload.constraint(self.shown)
        return self.shown

    def _progress(self) -> Progress:
        arguments = self.arguments
        metric = metric_on(arguments.workload, arguments.target_on)
        return Progress(self.step, arguments.max_steps, metric.name, arguments.target, self.looks.latest)

    def _save(self) -> None:
        if self.checkpoint is None:
            return
        self.losses.read()
        state = {
            "model": self.model.state_dict(),
            "averages": {name: average.state_dict() for name, average in self.averages.items()},
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "looks": self.looks.state_dict(),
            "losses": (self.losses.initial, self.losses.last, self.losses.high),
            "step": self.step,
            "seconds": self.clock.seconds,
            "evaluating": self.clock.evaluating,
        }
        save_checkpoint(self.checkpoint, self.identity, state)

    def _resume(self) -> None:
        state = None if self.checkpoint is None else load_checkpoint(self.checkpoint, self.identity)
        if state is None:
            return
        self.model.load_state_dict(state["model"])
        for name, average in self.averages.items():
            average.load_state_dict(state["averages"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        self.looks.load_state_dict(state["looks"])
        self.losses.initial, self.losses.last, self.losses.high = state["losses"]
        self.step = state["step"]
        self.clock.earlier, self.clock.evaluating = state["seconds"], state["evaluating"]

    def _record(self, status: Status, reason: str) -> Record:
        arguments, history, found = self.arguments, self.looks.history(), self.looks.found
        return Record(
            workload=arguments.workload.name,
            size=arguments.workload.size,
            optimizer=arguments.recipe.name,
            settings=arguments.settings,
            schedule=arguments.schedule,
            batch_size=arguments.batch_size,
            batch_schedule=arguments.batches.rows,
            seed=arguments.seed,
            target=arguments.target,
            target_on=arguments.target_on,
            status=status,
            steps=found.steps if found is not None else None,
            steps_interpolated=found.interpolated if found is not None else None,
            steps_taken=self.step,
            last_loss=None if math.isnan(self.losses.last) else self.losses.last,
            best_metric=best_exact(history, metric_on(arguments.workload, arguments.target_on).higher_is_better),
            history=history,
            crossings=self.looks.crossings(),
            seconds=self.clock.seconds,
            evaluation_seconds=self.clock.evaluating,
            examples=arguments.batches.examples(self.step),
            examples_read=self.looks.read,
            notes=self.notes,
            max_steps=arguments.max_steps,
            micro_batch=arguments.micro_batch,
            device=str(arguments.device),
            threads=torch.get_num_threads(),
            reason=reason,
            versions=versions(),
        )


def passes_of(arguments: Arguments, examples: int) -> float:
    """How often the step budget shows each of the `examples` of the training set.

    At most what the workload's budget of examples comes to: steps beyond it are those that large batches are granted,
    or that were asked for.
    """
    return min(arguments.batches.examples(arguments.max_steps), arguments.workload.max_examples) / examples


def _make_averages(arguments: Arguments, model: nn.Module) -> dict[str, Average]:
    """The ladder, or the average that settings ask for, or none."""
    if arguments.averages:
        return {str(averaging): Average(averaging, model, pauses=True) for averaging in LADDER}
    if arguments.recipe.averaged:
        averaging = Averaging.of(arguments.settings)
        return {str(averaging): Average(averaging, model)}
    return {}


def _notes(arguments: Arguments, examples: int, unfactored: Mapping[str, str]) -> Iterator[str]:
    """What a reader of the result should know."""
    if arguments.batches.largest > examples:
        yield f"a batch of {arguments.batches.largest:,} repeats examples: the training set has {examples:,}"
    if (passes := passes_of(arguments, examples)) > MOST_PASSES:
        yield f"the step budget shows each of the {examples:,} training examples up to {passes:,.0f} times"
    by_reason: dict[str, list[str]] = {}
    for name, reason in unfactored.items():
        by_reason.setdefault(reason, []).append(name)
    if by_reason:
        words = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())
        yield f"not preconditioned, but moved by plain SGD: {words}"
