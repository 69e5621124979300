"""The dual-prompt SFT stage: set A holds the model where it is, set B teaches the roles, and both are watched.

Trained on agentic episodes alone a model loses what it knew. So two sets are trained at once, and the system prompt
tells them apart: without one the model answers as before (set A, its own answers), with one it plays its role (set B).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from corpus_index.backends.base import SearchIndex
from environments.chat_format import ChatFormat
from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory
from rewards.breakdown import RewardBreakdown
from training.checkpoint import CheckpointManager
from training.config import Config
from training.config_sft import SftConfig
from training.engines.base import Sampling
from training.recipe import Players
from training.runlog import SFT, RunLog
from training.samples import trajectory_record
from training.sft.agentic import AgenticSet, agentic_set
from training.sft.general import general_set, held_out_answers
from training.sft.mixing import dual_mix, next_batch
from training.sft.picture import sample_page
from training.sft.retention import RetentionStop, breach, mean_logprob
from training.sft.samples import SETS, Sample, count_kinds, render_counts
from training.warm_start import warm_start

MAX_PASSES = 1.5
"""Over the answers of set A, in a whole stage."""


def sft_checkpoints(config: Config, folder: Path) -> CheckpointManager | None:
    """Those of a stage that runs on its own, beside those of self-play."""
    part = config.checkpointing
    return (
        CheckpointManager(folder / "sft_checkpoints", keep_top_k=1, save_period=part.save_period)
        if part.enabled
        else None
    )


def sft_stage(players: Players, log: RunLog, index: SearchIndex, manager: CheckpointManager | None = None) -> None:
    """What ``sft.recipe`` asks for; nothing where ``sft.max_num_steps`` is 0. See ``dual_prompt_sft``."""
    if not players.config.sft.max_num_steps:
        return
    if players.config.sft.recipe == "warm_start":
        warm_start(players, log)
    else:
        dual_prompt_sft(players, log, index, manager)


def dual_prompt_sft(
    players: Players, log: RunLog, index: SearchIndex, manager: CheckpointManager | None = None
) -> None:
    """``sft.max_num_steps`` steps on both sets. ``index`` is that of ``sft.agentic.data_path``'s rows.

    With ``manager`` a killed stage, started again, goes on from its last checkpoint; without one it starts anew. Raises
    RetentionStop where the gate is breached and says stop, ValueError where a set is empty.
    """
    config, engine = players.config, players.engine
    part = config.sft
    answers = general_set(config, engine, players.chat, log.folder, log.say)
    general, general_held_out = held_out_answers(answers, config)
    agentic = agentic_set(config, players.chat)
    samples = [*general, *agentic.train]
    show_samples(players.chat, log, samples)
    watch = StageWatch(players, log, general_held_out, agentic, index)
    found = manager.resume(engine) if manager else None
    done = found.step if found else 0
    if manager is not None:  # inside a self-play run, what stands in its log before the stage stays
        log.truncate_after(done, phase=SFT)
    drawn = Counter(sample.source for batch in batches_of(samples, part) for sample in batch)
    tell_passes(drawn["general"] / max(len(general), 1), len(general), log)
    batches = batches_of(samples, part)
    if found is None:
        watch.validate(0)
    for step, batch in enumerate(islice(batches, done, None), done + 1):
        started = time.monotonic()
        metrics = engine.sft([sample.trajectory for sample in batch])
        shown = {f"sft/{name}": value for name, value in {**metrics, **batch_metrics(batch)}.items()}
        if step % 10 == 0 or step == part.max_num_steps:
            log.step(step, shown, phase=SFT, seconds={"total": time.monotonic() - started})
        else:
            log.write_metrics(step, shown, phase=SFT)
        last = step == part.max_num_steps
        fallen = watch.validate(step) if last or (part.val_period and step % part.val_period == 0) else ""
        stopped = bool(fallen) and part.retention.on_breach == "stop"
        if manager is not None and (manager.due(step) or last or stopped):
            manager.save(step, engine, {})
        if stopped:
            raise RetentionStop(f"SFT ended after step {step}: {fallen}")


def batches_of(samples: Sequence[Sample], part: SftConfig) -> Iterator[list[Sample]]:
    """Those of all the stage's steps."""
    stream = dual_mix(samples, part)
    return (next_batch(stream, part) for _ in range(part.max_num_steps))


def tell_passes(passes: float, answers: int, log: RunLog) -> None:
    """Answers that come again and again are learned by heart, and what is like them is forgotten."""
    text = f"set A: {answers} answers, gone through {passes:.1f} times"
    if passes > MAX_PASSES:
        log.warn(f"{text}. That teaches them by heart: give more prompts, or raise sft.general.samples_per_prompt")
    else:
        log.say(text)


class StageWatch:
    """Validation of the stage; the log-probability that the gate compares with is that of the weights it is made at."""

    def __init__(
        self, players: Players, log: RunLog, general: Sequence[Sample], agentic: AgenticSet, index: SearchIndex
    ) -> None:
        self._players = players
        self._log = log
        self._general = general
        self._agentic = agentic
        self._index = index if agentic.index is None else agentic.index
        self._start = mean_logprob(players.engine, general)

    def validate(self, step: int) -> str:
        """Log both sets' loss, the fall of set A and the rollouts of set B; returns what the gate has to say."""
        engine, part = self._players.engine, self._players.config.sft
        started = time.monotonic()
        now = mean_logprob(engine, self._general)
        values = {
            "sft/general/val_loss": -now,
            "sft/general/drop": self._start - now,
            "sft/agentic/val_loss": -mean_logprob(engine, self._agentic.held_out),
        }
        played = self._played()
        values |= {f"sft/{name}": value for name, value in played_metrics(played).items()}
        if played:
            unpaid = [trajectory_record(rollout, RewardBreakdown({}, {}), None) for rollout in played]
            self._log.write_records(f"sft_rollouts_{step:06d}.jsonl", unpaid)
        self._log.step(step, values, phase=SFT, seconds={"total": time.monotonic() - started})
        fallen = breach(self._start - now, part.retention)
        if fallen:
            self._log.warn(f"SFT step {step}: {fallen}")
        return fallen

    def _played(self) -> list[Trajectory]:
        engine, count = self._players.engine, self._players.config.sft.rollouts
        tasks = [task for role in Role for task in _of_role(self._agentic.tasks, role)[:count]]
        if not tasks:
            return []
        own = engine.episode
        engine.episode = self._players.episode(self._index)
        try:
            return engine.rollout(tasks, Sampling(seed=self._players.config.sft.seed))
        finally:
            engine.episode = own


def _of_role(tasks: Sequence[Task], role: Role) -> list[Task]:
    return [task for task in tasks if task.role is role]


def played_metrics(played: Sequence[Trajectory]) -> dict[str, float]:
    """Of each role's rollouts: ``submitted_rate``, episodes that end with a whole submission; ``call_rate``, turns that
    hold one readable call; ``tool_error_rate``, readable calls of a tool that it refused."""
    metrics: dict[str, float] = {}
    for role in Role:
        mine = [t for t in played if t.role is role and t.stop_reason is not StopReason.ENVIRONMENT_FAULT]
        if not mine:
            continue
        events = [event for trajectory in mine for event in trajectory.events]
        readable = [event for event in events if event.name]
        submitted = sum(trajectory.stop_reason is StopReason.SUBMITTED for trajectory in mine)
        metrics |= {
            f"{role}/submitted_rate": submitted / len(mine),
            f"{role}/call_rate": len(readable) / len(events) if events else 0.0,
            f"{role}/tool_error_rate": sum(bool(e.error) for e in readable) / len(readable) if readable else 0.0,
        }
    return metrics


def batch_metrics(batch: Sequence[Sample]) -> Mapping[str, float]:
    """What a step was made of: the share of set A in its trained tokens, and the samples of each set."""
    tokens = {name: sum(s.trajectory.sampled_tokens for s in batch if s.source == name) for name in SETS}
    samples = {f"{name}_samples": float(sum(s.source == name for s in batch)) for name in SETS}
    return {"general_share": tokens["general"] / max(sum(tokens.values()), 1)} | samples


def show_samples(chat: ChatFormat, log: RunLog, samples: Sequence[Sample]) -> None:
    """``sft_tokens.md``, the mask read back, and a page for the first sample of each set and role."""
    path = log.write_text("sft_tokens.md", render_counts(count_kinds(samples, chat)))
    log.say(f"what is trained: {path}")
    shown: dict[str, Sample] = {}
    for sample in samples:
        shown.setdefault("general" if sample.source == "general" else sample.trajectory.role.value, sample)
    for name, sample in shown.items():
        log.write_text(f"sft_sample_{name}.html", sample_page(sample, chat))
