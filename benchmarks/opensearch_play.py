"""Self-play without a model on an index that goes away: scripted players, all at once, through the real loop."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from corpus_index.backends.base import SearchIndex
from environments.recorder import Recorder
from environments.task import Task
from environments.trajectory import Trajectory
from rewards.judge import RuleJudge
from training.config import Config
from training.console import RunConsole
from training.engines.base import Sampling
from training.experts import ExpertStuck
from training.game import Board
from training.loop import run
from training.recipe import Players
from training.runlog import RunLog

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "training"))

from company_play import Place, load, place
from scripted_play import SPOKEN, OneWeightEngine, Script, half_right

Harm = Callable[[], None]
COMPANY = "company:seed=3,projects=20,duplicates=0"


@dataclass
class Crowd(OneWeightEngine):
    """An engine whose episodes run side by side. ``harm[n]`` is done at the first tool answer of the n-th rollout,
    ``mend[n]`` at its end."""

    harm: Mapping[int, Harm] = field(default_factory=dict[int, Harm])
    mend: Mapping[int, Harm] = field(default_factory=dict[int, Harm])
    count: int = 0

    def rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
        number, self.count = self.count, self.count + 1
        made = asyncio.run(self._side_by_side(tasks, self.harm.get(number)))
        self.mend.get(number, lambda: None)()
        return made

    async def _side_by_side(self, tasks: Sequence[Task], harm: Harm | None) -> list[Trajectory]:
        left = [harm] if harm is not None else []
        members = Counter[str]()
        episodes: list[asyncio.Task[Trajectory]] = []
        for number, task in enumerate(tasks):
            script = self.act(task, members[task.group_id])
            members[task.group_id] += 1
            episodes.append(asyncio.create_task(self._one(task, script, f"{task.group_id}/{number}", left)))
        try:
            return await asyncio.gather(*episodes)
        finally:
            await self.episode.aclose()

    async def _one(self, task: Task, script: Script, uid: str, left: list[Harm]) -> Trajectory:
        chat = self.firm.chat
        state, messages = self.episode.start(task)
        recorder = Recorder(chat.prompt_ids(messages))
        text = next(script)
        while True:
            ids = chat.turn_ids(text)
            recorder.sampled(ids, [SPOKEN] * len(ids))
            observation, state = await self.episode.astep(state, text)
            messages.append({"role": "assistant", "content": text})
            if observation.done:
                return recorder.trajectory(uid=uid, state=state, policy_version=self.policy_version, messages=messages)
            if state.shown and left:
                left.pop()()
            recorder.observed(chat.observation_ids(observation.text, ended=True))
            try:
                text = script.send(state)
            except (StopIteration, ExpertStuck):
                text = "I do not know"


def small_firm() -> Place:
    """A company of 20 projects; its corpus is ``COMPANY``."""
    return place()


def settings(*overrides: str) -> Config:
    """Three steps of 12 proposals and as many Solvers; one masked rollout is one too many."""
    return load(
        "grpo.num_generations_per_prompt=4", "selfplay.proposer_prompts_per_step=3", "selfplay.max_solver_groups=20",
        "selfplay.hops={1: 1.0}", "selfplay.tool_variants=1", "grpo.max_num_steps=3", "grpo.val_period=0",
        "grpo.val_at_end=false", "sft.max_num_steps=0", "checkpointing.save_period=3", "checkpointing.metric_name=null",
        "env.max_fault_share=0", *overrides,
    )  # fmt: skip


def self_play(
    firm: Place, index: SearchIndex, folder: Path, config: Config, *, harm: Mapping[int, Harm], mend: Mapping[int, Harm]
) -> Crowd:
    """A whole run in ``folder``, resumed where there is a checkpoint. Rollouts count from 0: Proposers, Solvers, and so
    on. Raises FaultStop. Closes the index."""
    engine = Crowd(firm, firm.episode(config, index), half_right(firm), harm=harm, mend=mend)
    players = Players(cast("Any", engine), firm.chat, config)
    console = RunConsole(console=Console(stderr=True, highlight=False))
    try:
        with RunLog(folder, {}, console=console) as log:
            run(
                players, Board(index, tuple(index.ids()), firm.company), RuleJudge(), log,
                validate=dict, benchmark=lambda step, label: None,
            )  # fmt: skip
    finally:
        index.close()
    return engine


def train_metrics(folder: Path) -> list[dict[str, float]]:
    """Those of each step."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line["metrics"] for line in lines if line["phase"] == "train"]
