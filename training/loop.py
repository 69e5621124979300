"""A whole run: warm start, self-play steps, validation, checkpoints, and an exact resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rewards.judge import Judge
from training.ahead import RolloutsAhead
from training.checkpoint import Checkpoint, CheckpointManager
from training.config import Config
from training.diagnosis import FILE, diagnosis
from training.faults import FaultStop
from training.game import Board
from training.loop_state import OF_ATTEMPT, LoopState
from training.preflight import preflight
from training.recipe import Players
from training.restart import Restart, pending_restart
from training.runlog import SFT, RunLog
from training.selfplay import train_step
from training.sft.stage import sft_stage
from training.tripwire import TripwireStop, summary
from training.validation_policy import ValidationStop, fallen, standing

Validate = Callable[[], Mapping[str, float]]
Benchmark = Callable[[int, str], None]


def run(players: Players, board: Board, judge: Judge, log: RunLog, *, validate: Validate, benchmark: Benchmark) -> None:
    """``validate`` measures the held-out company; ``benchmark(step, label)`` measures and stores the fixed benchmark.

    Killed at any moment and started again, the run goes on from its last checkpoint and writes the same metrics. So it
    does after RunStop: FaultStop, where the search index failed too many rollouts (``env.on_faults``), or TripwireStop,
    where its numbers left their bands (``tripwire``).
    """
    config, engine = players.config, players.engine
    sampling = preflight(engine, config, log)
    manager = checkpoints(config, log.folder)
    found = manager.resume(engine)
    if found is None:
        log.truncate_after(0, phase=SFT)
        begin = pending_restart(log.folder)
        label = start(players, board, log, begin, benchmark)
        benchmark(0, label)
        if config.grpo.val_at_start:
            log.step(0, validate(), phase="val")
        memory = {name: kept for name, kept in begin.memory.items() if name not in OF_ATTEMPT} if begin else {}
        if config.checkpointing.enabled:
            manager.save(0, engine, memory)
    else:
        log.truncate_after(found.step)
        log.say(f"resumed from {found.path}")
        memory = judged(found, players, manager, log)
    metric = found.metric if found else None
    state = LoopState.load(config, memory)
    ahead = rollouts_ahead(players, board, judge)
    validate = validate if ahead is None else ahead.alone(validate)
    for step in range((found.step if found else 0) + 1, config.grpo.max_num_steps + 1):
        try:
            report = train_step(engine, board, judge, state.curriculum.applied(config), step, state, ahead)
        except FaultStop as stop:
            if config.checkpointing.enabled:
                keep_step(step - 1, manager, players, state, metric)
            raise FaultStop(stop_message(step, stop, config, board.index.locator)) from stop
        log.step(step, report.metrics | state.curriculum.metrics(), seconds=report.seconds)
        if passed := state.curriculum.advance(step, report.metrics):
            log.say(passed)
        if report.trouble:
            log.warn(f"step {step}: {report.trouble}")
        log.write_samples(step, report.samples)
        last = step == config.grpo.max_num_steps
        values: Mapping[str, float] = {}
        if (config.grpo.val_period and step % config.grpo.val_period == 0) or (last and config.grpo.val_at_end):
            started = time.monotonic()
            values = validate()
            log.step(step, values, phase="val", seconds={"total": time.monotonic() - started})
        metric = ranking_metric(config.checkpointing.metric_name, report.metrics, values)
        breaches = state.tripwire.check(step, report.metrics)
        if config.checkpointing.enabled and (manager.due(step) or last or breaches):
            manager.save(step, engine, state.saved(), metric=metric)
        if breaches:
            advice = how_to_go_on(step, manager.best(), config)
            path = log.write_text(FILE, diagnosis(breaches, state.tripwire.recent(), config, sampling, advice))
            raise TripwireStop(
                f"paused after step {step}: {summary(breaches)}. What to check is in {path}; {advice[0]}"
            )
    if config.grpo.max_num_steps:  # a run of 0 steps has measured its start above
        benchmark(config.grpo.max_num_steps, config.selfplay.mode)


def rollouts_ahead(players: Players, board: Board, judge: Judge) -> RolloutsAhead | None:
    """``grpo.async_grpo``; None where rollouts and training take turns."""
    settings = players.config.grpo
    if not settings.async_grpo.enabled:
        return None
    age = settings.async_grpo.max_trajectory_age_steps
    return RolloutsAhead(players.engine, board, judge, max_age=age, last_step=settings.max_num_steps)


def start(players: Players, board: Board, log: RunLog, begin: Restart | None, benchmark: Benchmark) -> str:
    """Bring the engine to the weights of step 0; returns what they are called."""
    if begin is not None and begin.policy is not None:
        players.engine.load(begin.policy)
        players.engine.restart()
        log.say(f"restarted from {begin.policy}")
        return f"restart from {begin.source}"
    benchmark(-1, "base model")
    sft_stage(players, log, board.index)
    return "SFT warm start" if players.config.sft.max_num_steps else "start"


def judged(found: Checkpoint, players: Players, manager: CheckpointManager, log: RunLog) -> Mapping[str, Any]:
    """The loop's state to resume with, after ``checkpointing.validation_policy`` has looked at the validations.

    Raises ValidationStop where it says to stop.
    """
    settings = players.config.checkpointing
    measured = standing(log.metrics_path, settings, found.step)
    seen = found.loop_state.get("judged", 0)
    trouble = fallen(measured, settings) if measured and measured.last[0] > seen else ""
    if not trouble or settings.validation_policy == "ignore":
        return found.loop_state
    best = manager.best()
    if settings.validation_policy == "stop":
        raise ValidationStop(
            f"not resumed: {trouble}. Start again with --restart sft, or set checkpointing.validation_policy to warn, "
            "or to restart_from_best"
        )
    log.warn(trouble)
    if settings.validation_policy == "warn" or best is None or measured is None:
        return found.loop_state
    players.engine.load(best.policy)
    memory = found.loop_state | {"judged": measured.last[0]}
    # Saved at once: killed now or later, the run goes on with these weights, and does not judge one value twice.
    manager.save(found.step, players.engine, memory)
    log.say(f"goes on after step {found.step} with the weights of step {best.step}")
    return memory


def keep_step(step: int, manager: CheckpointManager, players: Players, state: LoopState, metric: float | None) -> None:
    """A checkpoint of ``step``, whose weights the engine still has, unless there is one."""
    newest = manager.latest()
    if newest is None or newest.step < step:
        manager.save(step, players.engine, state.saved(), metric=metric)


def stop_message(step: int, stop: FaultStop, config: Config, locator: str) -> str:
    after = (
        f"step {step - 1} is saved: start what is away again (the search node, the judge), then the same command, and "
        f"the run goes on with step {step}. To go on without a step's update instead, set env.on_faults to continue"
        if config.checkpointing.enabled
        else "nothing is saved, because checkpointing.enabled is false: start what is away again and the run anew"
    )
    return f"step {step} was given up: {stop}. Index: {locator}; {after}"


def how_to_go_on(step: int, best: Checkpoint | None, config: Config) -> list[str]:
    """What can be done after a pause, the simplest first."""
    if not config.checkpointing.enabled:
        return ["nothing is saved, because checkpointing.enabled is false: mend the cause and start the run anew"]
    best_step = f", step {best.step}" if best else ""
    return [
        f"step {step} is saved, and the same command goes on with step {step + 1}",
        f"`--restart sft` or `--restart base` starts again from the weights before self-play, `--restart RUN` from the "
        f"best checkpoint of a run (here{best_step or ': none'}); the questions of this run are kept",
        "a band that a healthy run leaves is set in the recipe's `tripwire` section",
    ]


def checkpoints(config: Config, folder: Path) -> CheckpointManager:
    part = config.checkpointing
    return CheckpointManager(
        Path(part.checkpoint_dir) if part.checkpoint_dir else folder / "checkpoints",
        keep_top_k=part.keep_top_k, save_period=part.save_period, higher_is_better=part.higher_is_better,
    )  # fmt: skip


def ranking_metric(name: str | None, train: Mapping[str, float], val: Mapping[str, float]) -> float | None:
    """``val:accuracy`` is ``val/overall/accuracy`` of this step's validation, ``train:x`` the step's own metric ``x``.

    None where the step has no such value (it was not validated).
    """
    if name is None:
        return None
    kind, _, metric = name.partition(":")
    return val.get(f"val/overall/{metric}") if kind == "val" else train.get(metric)
