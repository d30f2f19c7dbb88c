"""Watching the official loop: the one place that rebinds names of the cookbook, and undoes it.

Five names, while one run lasts:

* `ml_log.setup_logging`: without its take-over of the root logger and its table printer, and with a logger of ours,
  whose `log_metrics` is the end of a step;
* `checkpoint_utils.CheckpointManager`: reports saves, and can be asked for one;
* `train.print_group`: writes megabytes a step, does nothing here;
* `train.train_step`: calls the original with a client that notes the loss, and derives the figures it drops; and
  `train.compute_advantages`, whose result is checked against the definition.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tinker_cookbook import checkpoint_utils
from tinker_cookbook.rl import train
from tinker_cookbook.rl.data_processing import compute_advantages
from tinker_cookbook.utils import ml_log

from console.errors import QuarterdeckError
from console.journal import events as ev
from console.records.cookbook import WEIGHTS
from console.training.advantages import check_advantages
from console.training.figures import batch_figures
from console.training.runtime import Runtime
from console.training.steps import step_row


class _NotingFuture:
    """Passes a forward-backward result through and notes its metrics."""

    def __init__(self, inner: Any, noted: list[dict[str, float]]) -> None:
        self._inner, self._noted = inner, noted

    async def result_async(self, *args: Any, **kwargs: Any) -> Any:
        result = await self._inner.result_async(*args, **kwargs)
        self._noted.append(dict(result.metrics or {}))
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _NotingClient:
    """A training client that notes what `forward_backward` reports; everything else is the client's own."""

    def __init__(self, inner: Any, noted: list[dict[str, float]]) -> None:
        self._inner, self._noted = inner, noted

    async def forward_backward_async(self, *args: Any, **kwargs: Any) -> Any:
        return _NotingFuture(await self._inner.forward_backward_async(*args, **kwargs), self._noted)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _StepLogger(ml_log.Logger):
    """The end of a step: turns the cookbook's metrics and what we noted into one row."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def log_hparams(self, config: Any) -> None:
        """The run's manifest has the configuration."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        self._runtime.emit(step_row(self._runtime, metrics))
        self._runtime.end_step()


_ORIGINALS: dict[tuple[Any, str], Any] = {
    (ml_log, "setup_logging"): ml_log.setup_logging,
    (checkpoint_utils, "CheckpointManager"): checkpoint_utils.CheckpointManager,
    (train, "print_group"): train.print_group,
    (train, "train_step"): train.train_step,
    (train, "compute_advantages"): compute_advantages,
}


@contextlib.contextmanager
def observed(runtime: Runtime) -> Iterator[None]:
    """While the context lasts, the cookbook's loop reports to `runtime`.

    Contexts do not stack: a later one replaces an earlier one whose thread still hangs in the SDK, and is not undone
    when that one ends.
    """
    ours: dict[tuple[Any, str], Any] = {
        (ml_log, "setup_logging"): _setup_logging(runtime, _ORIGINALS[ml_log, "setup_logging"]),
        (checkpoint_utils, "CheckpointManager"): _manager_class(
            runtime, _ORIGINALS[checkpoint_utils, "CheckpointManager"]
        ),
        (train, "print_group"): lambda *args, **kwargs: None,
        (train, "train_step"): _train_step(runtime, _ORIGINALS[train, "train_step"]),
        (train, "compute_advantages"): _checked_advantages(_ORIGINALS[train, "compute_advantages"]),
    }
    for (module, name), replacement in ours.items():
        setattr(module, name, replacement)
    try:
        yield
    finally:
        for (module, name), replacement in ours.items():
            if getattr(module, name) is replacement:
                setattr(module, name, _ORIGINALS[module, name])


def _setup_logging(runtime: Runtime, original: Any) -> Any:
    def setup_logging(*args: Any, **kwargs: Any) -> Any:
        kwargs["do_configure_logging_module"] = False
        logger = original(*args, **kwargs)
        kept = [x for x in logger.loggers if not isinstance(x, ml_log.PrettyPrintLogger)]
        logger.loggers = [*kept, _StepLogger(runtime)]
        return logger

    return setup_logging


def _manager_class(runtime: Runtime, original: Any) -> Any:
    class ReportingManager(original):  # type: ignore[misc]
        """Reports every save. `step` counts the steps that are in the checkpoint, and is where a resume goes on."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            runtime.checkpoints, runtime.service = self, kwargs.get("service_client")

        async def save_periodic_async(self, step: int, loop_state: dict[str, Any]) -> dict[str, str]:
            return await self.save_at(step, "periodic")

        async def save_at(self, steps_done: int, kind: str) -> dict[str, str]:
            """Save a full checkpoint that resumes at step `steps_done`."""
            async with runtime.saves.lock:
                runtime.emit(ev.RunPhase(phase="saving"))
                paths: dict[str, str] = await super().save_periodic_async(steps_done, _state(runtime, steps_done))
                self._report(f"{steps_done:06d}", steps_done, paths, kind)
                return paths

        async def save_on_request(self, steps_done: int, name: str) -> str:
            """The same under another name, which is returned; the caller holds the lock."""
            runtime.emit(ev.RunPhase(phase="saving"))
            paths = await checkpoint_utils.save_checkpoint_async(
                training_client=self._training_client,
                name=name,
                log_path=self._log_path,
                loop_state=_state(runtime, steps_done),
                kind="both",
                ttl_seconds=self._ttl_seconds,
                store=self._store,
            )
            self._report(name, steps_done, paths, "request")
            return name

        async def save_beginning(self, steps_done: int) -> None:
            """What the run begins with, to resume from; nothing is sampled from it. The caller holds the lock."""
            name = f"{steps_done:06d}-start"
            paths = await checkpoint_utils.save_checkpoint_async(
                training_client=self._training_client,
                name=name,
                log_path=self._log_path,
                loop_state=_state(runtime, steps_done),
                kind="state",
                ttl_seconds=self._ttl_seconds,
                store=self._store,
            )
            self._report(name, steps_done, paths, "start")

        async def _do_rolling_save_async(self, step: int, loop_state: dict[str, Any]) -> None:
            weights, before = runtime.weights, self._prev_state_path
            await super()._do_rolling_save_async(step, loop_state | {WEIGHTS: weights})
            if self._prev_state_path != before:
                path = str(self._prev_state_path)
                name = f"{step:06d}"
                runtime.emit(ev.CheckpointSaved(name=name, step=step, path=path, kind="rolling", weights=weights))

        async def save_final_async(self, loop_state: dict[str, Any]) -> dict[str, str]:
            async with runtime.saves.lock:
                runtime.emit(ev.RunPhase(phase="saving"))
                paths: dict[str, str] = await super().save_final_async(loop_state | {WEIGHTS: runtime.weights})
                self._report("final", int(loop_state.get("batch", 0)), paths, "final")
                return paths

        def _report(self, name: str, steps_done: int, paths: dict[str, str], kind: str) -> None:
            runtime.last_saved, runtime.last_saved_name = steps_done, name
            runtime.emit(
                ev.CheckpointSaved(
                    name=name,
                    step=steps_done,
                    path=str(paths.get("state_path", "")),
                    kind=kind,
                    weights=runtime.weights,
                )
            )

    return ReportingManager


def _state(runtime: Runtime, steps_done: int) -> dict[str, Any]:
    """What the cookbook keeps with a checkpoint: where a resume goes on, and the name of the weights."""
    return {"batch": steps_done, WEIGHTS: runtime.weights}


def _train_step(runtime: Runtime, original: Any) -> Any:
    async def train_step(data_D: list[Any], training_client: Any, *args: Any, **kwargs: Any) -> Any:
        await runtime.begin_training()
        bound = dict(zip(("learning_rate", "num_substeps", "loss_fn", "loss_fn_config"), args)) | kwargs
        noted: list[dict[str, float]] = []
        logprobs_D = await original(data_D, _NotingClient(training_client, noted), *args, **kwargs)
        if data_D:
            runtime.trained(min(int(bound.get("num_substeps") or 1), len(data_D)))
        losses = [m["loss:sum"] for m in noted if "loss:sum" in m]
        reported = sum(losses) if losses and len(losses) == len(noted) else None
        runtime.figures.append(
            batch_figures(data_D, logprobs_D, str(bound.get("loss_fn")), bound.get("loss_fn_config"), reported)
        )
        return logprobs_D

    return train_step


def _checked_advantages(original: Any) -> Any:
    def compute_advantages(groups_P: list[Any], *args: Any, **kwargs: Any) -> Any:
        advantages_P = original(groups_P, *args, **kwargs)
        for group, advantages_G in zip(groups_P, advantages_P):
            problem = check_advantages(group.get_total_rewards(), [float(a) for a in advantages_G])
            if problem is not None:
                raise QuarterdeckError(f"the cookbook's group advantages are not reward minus group mean: {problem}")
        return advantages_P

    return compute_advantages
