"""The engine's rollouts and log-probs over our actor, with and without NeMo-RL itself: no model in it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import nemo_rl_play as play
import pytest
import torch
from nemo_rl_play import Company, ScriptedGeneration
from scripted_play import true_proposal

from corpus_index.backends import open_index
from environments.episode import Episode
from environments.nemo_rl import SearchActor
from environments.protocol import render_call
from environments.task import Role, Task
from environments.trajectory import StopReason
from training.engines.base import Sampling
from training.engines.nemo_rl import engine as module
from training.engines.nemo_rl.engine import NemoRlEngine
from training.engines.nemo_rl.pieces import Pieces, Start
from training.recipe import make_episode


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Company:
    return play.company(tmp_path_factory.mktemp("company"), "policy.max_total_sequence_length=4096")


@dataclass
class Trainer:
    """A policy that gives every token of place t the log-prob -t."""

    data_parallel_size: int = 3
    calls: list[str] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)

    def prepare_for_lp_inference(self) -> None:
        self.calls.append("prepare_for_lp_inference")

    def offload_after_refit(self) -> None:
        self.calls.append("offload_after_refit")

    def get_logprobs(self, data: Any) -> dict[str, torch.Tensor]:
        self.asked.append(data)
        rows, width = data["input_ids"].shape
        return {"logprobs": -torch.arange(width, dtype=torch.float).expand(rows, width)}

    def shutdown(self) -> bool:
        self.calls.append("shutdown")
        return True


@dataclass
class Generation(ScriptedGeneration):
    greedy: list[bool] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    works: bool = True
    breaks: bool = False

    def prepare_for_generation(self, *args: Any, **kwargs: Any) -> bool:
        self.calls.append("prepare")
        return self.works

    def finish_generation(self, *args: Any, **kwargs: Any) -> bool:
        self.calls.append("finish")
        return self.works

    def generate(self, data: Any, greedy: bool = False) -> Any:
        self.greedy.append(greedy)
        if self.breaks and len(self.greedy) > 1:
            raise RuntimeError("a worker died")
        return super().generate(data, greedy)

    def shutdown(self) -> bool:
        return True


@dataclass
class Lab:
    """An engine over the company, and what it is made of."""

    engine: NemoRlEngine
    generation: Generation
    trainer: Trainer
    starts: list[Start]
    refits: list[int]


def answer(texts: list[str], met: int) -> str:
    """Look once, then submit."""
    if len(texts) == 1:
        return render_call("search_keyword", {"keywords": ["budget"]})
    return render_call("submit", {"answer": f"a{met}", "evidence": ["0000"]})


@pytest.fixture
def lab(company: Company, monkeypatch: pytest.MonkeyPatch) -> Lab:
    generation, trainer = Generation(company.chat, answer), Trainer()
    starts: list[Start] = []
    refits: list[int] = []
    settings = {
        "train_micro_batch_size": 2, "logprob_batch_size": 1, "make_sequence_length_divisible_by": 8,
        "dynamic_batching": {"enabled": False}, "sequence_packing": {"enabled": False},
        "generation": {
            "backend": "vllm", "vllm_cfg": {"async_engine": False}, "colocated": {"enabled": True},
            "_pad_token_id": company.chat.tokenizer.pad_token_id,
        },
    }  # fmt: skip

    def assemble(start: Start) -> Pieces:
        starts.append(start)
        return Pieces(trainer, generation, {"policy": settings})  # pyright: ignore[reportArgumentType]

    def start_actor(_: Episode) -> Any:
        return SearchActor.remote(company.section)

    episode = make_episode(company.config, company.chat, open_index(company.section["index"]))
    engine = NemoRlEngine(company.config, company.chat, episode, assemble=assemble, start_actor=start_actor)
    monkeypatch.setattr(module, "refit", lambda pieces: refits.append(engine.policy_version))
    return Lab(engine, generation, trainer, starts, refits)


def tasks(*groups: str) -> list[Task]:
    return [Task(role=Role.SOLVER, group_id=group, question="What is the budget?") for group in groups]


def test_trajectories_come_in_the_order_of_their_tasks(lab: Lab) -> None:
    asked = [*tasks("x", "y"), replace(tasks("x")[0])]
    trajectories = lab.engine.rollout(asked, Sampling())
    assert [t.uid for t in trajectories] == ["x/0", "y/0", "x/1"]
    assert [t.task for t in trajectories] == asked
    assert {t.stop_reason for t in trajectories} == {StopReason.SUBMITTED}
    assert sorted(t.submission.answer for t in trajectories if t.submission) == ["a0", "a1", "a2"]
    assert all(len(t.turn_starts) == 2 and t.events[0].name == "search_keyword" for t in trajectories)
    assert all(t.logprobs[at] == play.logprob_of(t.token_ids[at]) for t in trajectories for at in t.turn_starts)


def test_both_roles_play_in_one_rollout(lab: Lab, company: Company) -> None:
    proposal = true_proposal(company.firm, 0)
    script = list(proposal.script())

    def speak(texts: list[str], met: int) -> str:
        return answer(texts, met) if "What is the budget?" in texts[0] else script[(len(texts) - 1) // 2]

    lab.generation.speak = speak
    proposer = Task(role=Role.PROPOSER, group_id="p", seed="a mail")
    made = lab.engine.rollout([proposer, *tasks("x")], Sampling())
    assert [t.role for t in made] == [Role.PROPOSER, Role.SOLVER]
    assert made[0].submission is not None
    assert made[0].submission.question == proposal.question


def test_nothing_starts_before_the_first_rollout_and_weights_go_over_once(lab: Lab) -> None:
    assert lab.starts == []
    assert lab.engine.rollout([], Sampling()) == []
    assert lab.starts == []
    lab.engine.rollout(tasks("x"), Sampling())
    lab.engine.rollout(tasks("x"), Sampling(greedy=True))
    assert lab.starts == [Start()]
    assert lab.refits == [0]
    assert lab.generation.greedy == [False, False, True, True]
    assert lab.generation.calls == []  # the refit wakes it, and nobody has asked for its memory
    lab.engine.logprobs(lab.engine.rollout(tasks("x"), Sampling()))
    lab.engine.rollout(tasks("x"), Sampling())
    assert lab.generation.calls == ["finish", "prepare"]
    assert lab.trainer.calls == ["prepare_for_lp_inference", "offload_after_refit"]
    assert lab.refits == [0]


def test_log_probs_come_back_to_their_trajectories(lab: Lab) -> None:
    made = lab.engine.rollout(tasks("x", "y"), Sampling())
    found = lab.engine.logprobs(made)
    for trajectory, row in zip(made, found, strict=True):
        assert row == [-float(at) * mask for at, mask in enumerate(trajectory.loss_mask)]
    (data,) = lab.trainer.asked
    assert data["input_ids"].shape[0] == 6  # two rows over three workers in micro-batches of two
    assert data["input_ids"].shape[1] % 8 == 0
    assert data["sample_mask"].sum() == 2
    assert lab.engine.logprobs([]) == []


def test_a_rollout_that_broke_down_leaves_nothing_to_the_next(lab: Lab) -> None:
    lab.generation.breaks = True
    with pytest.raises(RuntimeError, match="a worker died"):
        lab.engine.rollout(tasks("x"), Sampling())
    lab.generation.breaks = False
    (again,) = lab.engine.rollout(tasks("x"), Sampling())
    assert len(again.turn_starts) == 2


def test_a_generation_that_does_not_sleep_or_wake_is_an_error(lab: Lab) -> None:
    made = lab.engine.rollout(tasks("x"), Sampling())
    lab.generation.works = False
    with pytest.raises(RuntimeError, match="could not be put to sleep"):
        lab.engine.logprobs(made)
    with pytest.raises(RuntimeError, match="could not be woken up"):
        lab.engine.rollout(tasks("x"), Sampling())


def test_a_prompt_that_fills_the_context_ends_its_episode_or_the_run(company: Company, lab: Lab) -> None:
    long = replace(tasks("long")[0], opening="word " * 5000)
    made = lab.engine.rollout([*tasks("x"), long], Sampling())
    assert [t.stop_reason for t in made] == [StopReason.SUBMITTED, StopReason.MAX_TOKENS]
    assert made[1].sampled_tokens == 0
    with pytest.raises(ValueError, match=r"raise policy\.max_total_sequence_length"):
        lab.engine.rollout([Task(role=Role.SOLVER, group_id="q", question="word " * 5000)], Sampling())


@pytest.mark.parametrize("asked", [Sampling(temperature=0.5), Sampling(top_p=0.9), Sampling(min_p=0.1)])
def test_a_sampling_of_its_own_is_refused(lab: Lab, asked: Sampling) -> None:
    with pytest.raises(ValueError, match=r"set policy\.generation"):
        lab.engine.rollout(tasks("x"), asked)
    assert lab.engine.effective_sampling(asked).temperature == 1.0


def test_demonstrations_are_refused(lab: Lab) -> None:
    with pytest.raises(ValueError, match="run the SFT stage first"):
        lab.engine.sft([])


def test_a_folder_of_something_else_is_no_checkpoint(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"set policy\.model_name to the folder"):
        lab.engine.load(tmp_path)
    with pytest.raises(RuntimeError, match="call load before it"):
        lab.engine.restart()
