"""NeMo-RL's own loops on a tiny model: ``grpo_train`` with our environment, ``sft_train`` on our episodes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nemo_rl_source import REASON, SOURCE

pytest.importorskip("nemo_rl.algorithms", reason=REASON)

import nemo_rl_play as play
import torch
from nemo_rl.algorithms import grpo, sft
from nemo_rl.algorithms.loss import ClippedPGLossFn, NLLLossFn
from nemo_rl.data.collate_fn import rl_collate_fn
from nemo_rl.data.datasets.processed_dataset import AllTaskProcessedDataset
from nemo_rl.data.datasets.response_datasets.oai_format_dataset import OpenAIFormatDataset
from nemo_rl.data.interfaces import TaskDataSpec
from nemo_rl.data.processors import sft_processor
from nemo_rl.environments.utils import create_env
from nemo_rl.utils.checkpoint import CheckpointManager
from nemo_rl.utils.config import load_config, parse_hydra_overrides, register_omegaconf_resolvers
from nemo_rl.utils.logger import Logger
from nemo_rl_play import Company
from omegaconf import OmegaConf
from scripted_play import true_proposal
from stock_policy import TinyGeneration, TinyPolicy, tiny_model
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import Qwen3ForCausalLM

from environments import nemo_rl
from environments.chat_rows import row_of, save_rows
from environments.nemo_rl_rows import RolloutTokenizer, make_rows
from environments.protocol import render_call
from environments.recorder import Recorder
from environments.task import Role, Task
from environments.trajectory import Trajectory

GROUP, PROMPTS, STEPS, LONGEST = 4, 2, 3, 1024
GSPO = ("loss_fn.sequence_level_importance_ratios=true", "loss_fn.token_level_loss=false")


class KeptLogger(Logger):
    """Its own files, and every metric in ``kept``: step and prefixed name to value."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.kept: dict[tuple[int, str], Any] = {}

    def log_metrics(self, metrics: Any, step: int, prefix: str = "", *args: Any, **kwargs: Any) -> None:
        self.kept |= {(step, f"{prefix}/{name}"): value for name, value in metrics.items()}
        super().log_metrics(metrics, step, prefix, *args, **kwargs)


def stock_config(name: str, folder: Path, kind: Any, *overrides: str) -> Any:
    """NeMo-RL's own defaults with what a CPU and a tiny model need."""
    register_omegaconf_resolvers()
    read = parse_hydra_overrides(
        load_config(Path(SOURCE) / "examples/configs" / name),
        [
            f"policy.max_total_sequence_length={LONGEST}", f"logger.log_dir={folder / 'logs'}",
            f"checkpointing.checkpoint_dir={folder / 'checkpoints'}", "logger.monitor_gpus=false",
            "logger.wandb_enabled=false", "logger.tensorboard_enabled=false", *overrides,
        ],
    )  # fmt: skip
    return kind(**OmegaConf.to_container(read, resolve=True))


def questions(firm: Company) -> list[Task]:
    found = [true_proposal(firm.firm, number) for number in range(PROMPTS * STEPS)]
    return [
        Task(role=Role.SOLVER, group_id=f"q{n}", question=each.question, answer=each.answer, evidence=each.evidence)
        for n, each in enumerate(found)
    ]


@pytest.fixture(scope="module")
def firm(tmp_path_factory: pytest.TempPathFactory) -> Company:
    return play.company(tmp_path_factory.mktemp("firm"))


@pytest.fixture(scope="module")
def env(firm: Company, cluster: None) -> Any:
    nemo_rl.register()
    section = {"score": "rewards.episode_pay:SolverEpisodePay", "score_settings": {"solver": {"evidence_bonus": 0.5}}}
    return create_env("futari_questions", firm.section | section)


class Coach:
    """Every second rollout of a prompt is told what an expert would say; the others sample freely."""

    def __init__(self, firm: Company, tasks: Sequence[Task]) -> None:
        self._chat = firm.chat
        self._tasks = {task.question: task for task in tasks}
        self._met: Counter[str] = Counter()

    def __call__(self, context: list[int]) -> list[int] | None:
        text = self._chat.tokenizer.decode(context)
        task = self._tasks[text.split("question: ")[1].split("<|im_end|>")[0]]
        read = render_call("read_mail", {"id": task.evidence[0]})
        if read in text:
            submission = {"answer": task.answer, "evidence": list(task.evidence)}
            return self._chat.turn_ids(render_call("submit", submission))
        if "<tool_response>" in text:
            return None
        self._met[text] += 1
        return self._chat.turn_ids(read) if self._met[text] % 2 else None


def expert(firm: Company, task: Task) -> Trajectory:
    """The told rollout, in this process."""
    state, messages = firm.episode.start(task)
    recorder = Recorder(firm.chat.prompt_ids(messages))
    submission = {"answer": task.answer, "evidence": list(task.evidence)}
    for text in (render_call("read_mail", {"id": task.evidence[0]}), render_call("submit", submission)):
        ids = firm.chat.turn_ids(text)
        recorder.sampled(ids, [0.0] * len(ids))
        messages.append({"role": "assistant", "content": text})
        seen, state = firm.episode.step(state, text)
        if not state.done:
            recorder.observed(firm.chat.observation_ids(seen.text, ended=True))
            messages.append({"role": "tool", "content": seen.text})
    return recorder.trajectory(uid=task.group_id, state=state, policy_version=0, messages=messages)


def train_grpo(
    firm: Company, env: Any, folder: Path, *overrides: str, asynchronous: bool = False, off_by: int = 0
) -> tuple[TinyPolicy, KeptLogger]:
    """``off_by``: how many places too late the log-probs of generation stand."""
    config = stock_config(
        "grpo_math_1B.yaml", folder, grpo.MasterConfig,
        f"grpo.num_prompts_per_step={PROMPTS}", f"grpo.num_generations_per_prompt={GROUP}",
        "grpo.max_rollout_turns=4", f"grpo.max_num_steps={STEPS}", "grpo.use_leave_one_out_baseline=false",
        "grpo.val_period=2", "grpo.max_val_samples=2", "grpo.val_batch_size=2", "checkpointing.save_period=2",
        f"policy.train_global_batch_size={PROMPTS * GROUP}", "checkpointing.metric_name=null",
        f"policy.generation.vllm_cfg.async_engine={str(asynchronous).lower()}", *overrides,
    )  # fmt: skip
    tasks = questions(firm)
    rows = make_rows(tasks, firm.episode, firm.chat, task_name="questions")
    load = partial(StatefulDataLoader, collate_fn=rl_collate_fn, batch_size=PROMPTS, drop_last=True)
    policy = TinyPolicy(tiny_model(len(firm.chat.tokenizer)), firm.chat.tokenizer, batch_size=PROMPTS * GROUP)
    generation = Shifted(
        policy, firm.chat.end_of_turn_ids, max_new_tokens=6, max_seq_len=LONGEST, asynchronous=asynchronous,
        tells_cuts=False, told=Coach(firm, tasks),
    )  # fmt: skip
    generation.off_by = off_by
    logger = KeptLogger(config.logger)
    grpo.grpo_train(
        policy, generation, load(rows), load(rows[:2]), RolloutTokenizer(firm.chat), ClippedPGLossFn(config.loss_fn),
        {"questions": env}, {"questions": env}, logger, CheckpointManager(config.checkpointing),
        grpo._default_grpo_save_state(), config,
    )  # fmt: skip
    return policy, logger


class Shifted(TinyGeneration):
    off_by = 0

    def generate(self, data: Any, greedy: bool = False) -> Any:
        made = super().generate(data, greedy)
        made["logprobs"] = made["logprobs"].roll(self.off_by, dims=1)
        return made


@pytest.mark.parametrize(("asynchronous", "overrides"), [(False, ()), (True, GSPO)], ids=["sync, GRPO", "async, GSPO"])
def test_grpo_train_plays_pays_and_trains(
    firm: Company, env: Any, tmp_path: Path, asynchronous: bool, overrides: tuple[str, ...]
) -> None:
    policy, logger = train_grpo(firm, env, tmp_path, *overrides, asynchronous=asynchronous)
    tasks = questions(firm)
    assert len(policy.trained) == STEPS
    for step, data in enumerate(policy.trained):
        logged = [
            json.loads(line) for line in next((tmp_path / "logs").rglob(f"train_data_step{step + 1}.jsonl")).open()
        ]
        rewards = torch.tensor([row["rewards"] for row in logged]).flatten()
        # Two of four were told: right, with the key mail opened. The others know nothing.
        assert rewards.tolist() == [1.5, 0.0, 1.5, 0.0] * PROMPTS
        assert data["sample_mask"].tolist() == [1.0] * PROMPTS * GROUP
        for row in range(0, PROMPTS * GROUP, 2):
            told = expert(firm, tasks[step * PROMPTS + row // GROUP])
            length = int(data["input_lengths"][row])
            assert tuple(data["input_ids"][row, :length].tolist()) == told.token_ids
            assert tuple(data["token_mask"][row, :length].tolist()) == told.loss_mask
        mask = data["token_mask"].bool()
        assert torch.allclose(data["generation_logprobs"][mask], data["prev_logprobs"][mask], atol=1e-4)
        for first in range(0, PROMPTS * GROUP, GROUP):
            each = [data["advantages"][row][mask[row]].unique() for row in range(first, first + GROUP)]
            assert [len(values) for values in each] == [1] * GROUP
            assert torch.cat(each).sum().item() == pytest.approx(0, abs=1e-5)
        assert logger.kept[step + 1, "train/reward"] == pytest.approx(0.75)
        assert logger.kept[step + 1, "train/token_mult_prob_error"] == pytest.approx(1, abs=1e-4)
        assert logger.kept[step + 1, "train/gen_kl_error"] == pytest.approx(0, abs=1e-4)
    assert logger.kept[2, "validation/accuracy"] > 0
    moved = [
        not torch.equal(mine, theirs)
        for mine, theirs in zip(policy.model.parameters(), policy.reference.parameters(), strict=True)
    ]
    assert all(moved)
    saved = Qwen3ForCausalLM.from_pretrained(tmp_path / f"checkpoints/step_{STEPS}/policy/weights")
    for mine, theirs in zip(policy.model.parameters(), saved.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_log_probs_of_the_wrong_tokens_show_in_the_metrics(firm: Company, env: Any, tmp_path: Path) -> None:
    _, logger = train_grpo(firm, env, tmp_path, "grpo.max_num_steps=1", "checkpointing.enabled=false", off_by=1)
    assert logger.kept[1, "train/token_mult_prob_error"] > 1.05


def sft_rows(told: Sequence[Trajectory], firm: Company, path: Path) -> Any:
    """Our rows on disk, read by NeMo-RL's dataset."""
    save_rows(path, map(row_of, told))
    read = OpenAIFormatDataset(str(path), use_preserving_dataset=True)
    return AllTaskProcessedDataset(
        read.dataset,
        firm.chat.tokenizer,
        TaskDataSpec(task_name=read.task_name),
        partial(sft_processor, add_bos=False, add_eos=True, add_generation_prompt=True),
        max_seq_length=LONGEST,
    )


def test_sft_train_learns_just_the_tokens_that_rl_would(firm: Company, cluster: None, tmp_path: Path) -> None:
    config = stock_config(
        "sft.yaml", tmp_path, sft.MasterConfig, "policy.train_global_batch_size=2", "sft.max_num_steps=6",
        "sft.max_num_epochs=3", "sft.val_period=0", "sft.val_at_start=false", "checkpointing.enabled=false",
        "policy.tokenizer.chat_template=default",
    )  # fmt: skip
    told = [expert(firm, task) for task in questions(firm)[:4]]
    rows = sft_rows(told, firm, tmp_path / "episodes.jsonl")
    policy = TinyPolicy(tiny_model(len(firm.chat.tokenizer)), firm.chat.tokenizer, lr=1e-2, batch_size=2)
    logger = KeptLogger(config.logger)
    sft.sft_train(
        policy, StatefulDataLoader(rows, batch_size=2, collate_fn=rl_collate_fn), None, firm.chat.tokenizer,
        NLLLossFn(), config, logger, CheckpointManager(config.checkpointing), sft._initial_sft_save_state(),
    )  # fmt: skip
    (newline,) = firm.chat.tokenizer.encode("\n", add_special_tokens=False)
    assert len(policy.trained) == 6
    for step, data in enumerate(policy.trained):
        for place in range(2):
            once = told[(step * 2 + place) % len(told)]
            length = int(data["input_lengths"][place])
            ids, mask = data["input_ids"][place, :length].tolist(), data["token_mask"][place, :length].tolist()
            # The template's newline behind a turn belongs to the assistant's message there, and is trained too.
            assert ids == [*once.token_ids, newline]
            ends = [at for at in range(1, length) if ids[at - 1] == firm.chat.end_of_turn_id and mask[at - 1]]
            assert [at for at in range(length - 1) if mask[at] != once.loss_mask[at]] == ends[:-1]
            assert [ids[at] for at in ends] == [newline] * 2
            assert [mask[at] for at in ends] == [1, 1]
    losses = [logger.kept[step + 1, "train/loss"] for step in range(6)]
    assert losses[-1] < losses[0] - 1
