"""A tiny random model, a byte-level tokenizer and a scripted episode for the engine's tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast, Qwen3Config

from environments.chat_format import ChatFormat
from environments.task import Role, Task
from environments.trajectory import StopReason, Submission, Trajectory
from training.config import Config
from training.engines.local import LocalEngine, pick_device
from training.engines.models import Policy, load_policy

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCABULARY = 300


def tokenizer() -> PreTrainedTokenizerFast:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>", "<|pad|>")])
    raw.add_tokens([AddedToken(text, special=False) for text in ("<tool_call>", "</tool_call>")])
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|pad|>", chat_template=CHATML
    )


def write_model(folder: Path, kind: str = "qwen3", **changes: Any) -> Path:
    """A folder with a config and a tokenizer, no weights."""
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,  # far from uniform, so that tokens differ in probability
    } | changes
    config = {"qwen3": Qwen3Config, "llama": LlamaConfig}[kind](tie_word_embeddings=kind == "qwen3", **shape)
    config.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


@dataclass(frozen=True)
class ScriptedState:
    task: Task
    turn: int = 0
    events: tuple[Any, ...] = ()
    opened: tuple[str, ...] = ()
    submission: Submission | None = None
    stop_reason: StopReason | None = None


@dataclass(frozen=True)
class ScriptedObservation:
    text: str
    done: bool


@dataclass
class ScriptedEpisode:
    """Answers each turn with a text that depends on the turn's own; the task's ``hops`` is its number of turns."""

    seen: list[str]
    asynchronous: ClassVar[bool] = False

    def start(self, task: Task) -> tuple[ScriptedState, list[dict[str, str]]]:
        return ScriptedState(task), [
            {"role": "system", "content": "you search mails"},
            {"role": "user", "content": task.question},
        ]

    def step(self, state: ScriptedState, text: str) -> tuple[ScriptedObservation, ScriptedState]:
        assert state.stop_reason is None
        self.seen.append(text)
        state = replace(state, turn=state.turn + 1, opened=(*state.opened, f"mail{state.turn}"))
        if state.turn >= state.task.hops:
            return ScriptedObservation("", True), replace(state, stop_reason=StopReason.SUBMITTED)
        return ScriptedObservation(f"result {state.turn} " + "ab" * (len(text) % 7), False), state


def tasks(groups: int = 3, members: int = 2, turns: int = 3) -> list[Task]:
    return [
        Task(role=Role.SOLVER, group_id=f"g{group}", question="where is it? " * (group + 1), hops=turns)
        for group in range(groups)
        for _ in range(members)
    ]


def config(folder: Path, *, slots: int = 4, **policy: Any) -> Config:
    return Config.model_validate(
        {
            "policy": {
                "model_name": str(folder),
                "init": "random",
                "max_total_sequence_length": 256,
                "generation": {"max_new_tokens": 12},
                "optimizer": {"kwargs": {"lr": 1e-2}},
            }
            | policy,
            "engine": {"device": "cpu", "rollout_batch_size": slots},
            "sft": {"learning_rate": 1e-2, "warmup_steps": 0},
        }
    )


def policy(settings: Config, seed: int = 0) -> Policy:
    return load_policy(settings.policy, device=pick_device(settings.engine), seed=seed)


def engine(settings: Config, seed: int = 0, **kwargs: Any) -> LocalEngine:
    loaded = policy(settings, seed)
    episode: Any = ScriptedEpisode([])
    return LocalEngine(settings, loaded, ChatFormat(loaded.tokenizer), episode, **kwargs)


def sampled(trajectory: Trajectory) -> list[int]:
    return [token for token, mask in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if mask]
