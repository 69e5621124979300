"""Generated tokens a second: the local engine's loop against transformers' ``generate``, same model and prompts.

    uv run python benchmarks/generation.py --model examples/models/FOLDER --rows 128 --slots 64 128

Both sample at temperature 1 without filters and stop at the end-of-turn token; every row counts what it generated.
``generate`` gets all prompts as one left-padded batch, its best case: one turn, no tool results, nothing to admit.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import GenerationConfig

from environments.chat_format import ChatFormat
from environments.task import Role, Task
from environments.trajectory import StopReason, Submission, ToolEvent
from training.config import EngineConfig, PolicyConfig
from training.engines.base import Sampling
from training.engines.generation import GenerationLimits, generate
from training.engines.local import pick_device
from training.engines.models import Policy, load_policy

SYSTEM = "You answer questions from a mailbox. Search it with the tools, open mails, then submit an answer."


@dataclass(frozen=True)
class State:
    task: Task
    turn: int = 0
    events: tuple[ToolEvent, ...] = ()
    opened: tuple[str, ...] = ()
    submission: Submission | None = None
    stop_reason: StopReason | None = None


@dataclass(frozen=True)
class Observation:
    text: str
    done: bool


@dataclass(frozen=True)
class FixedTurns:
    """An episode without tools: so many turns, each answered by the same text."""

    turns: int
    result: str = "3 hits: 0417 Budget review moved, 0932 Room for the review, 0033 Re: Budget"

    def start(self, task: Task) -> tuple[State, list[dict[str, str]]]:
        return State(task), [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task.question}]

    def step(self, state: State, text: str) -> tuple[Observation, State]:
        done = state.turn + 1 >= self.turns
        reason = StopReason.MAX_TURNS if done else None
        return Observation(self.result, done), replace(state, turn=state.turn + 1, stop_reason=reason)


def ours(policy: Policy, tasks: list[Task], turns: int, slots: int, new_tokens: int) -> tuple[int, float]:
    """(generated tokens, seconds)."""
    episode: Any = FixedTurns(turns)
    limits = GenerationLimits(slots=slots, max_new_tokens=new_tokens, max_total_tokens=2048)
    start = time.perf_counter()
    made = generate(
        policy,
        tasks,
        episode=episode,
        chat=ChatFormat(policy.tokenizer),
        sampling=Sampling(seed=1),
        limits=limits,
        policy_version=0,
    )
    return sum(trajectory.sampled_tokens for trajectory in made), time.perf_counter() - start


def theirs(policy: Policy, tasks: list[Task], new_tokens: int) -> tuple[int, float]:
    chat = ChatFormat(policy.tokenizer)
    start = time.perf_counter()
    prompts = [chat.prompt_ids(FixedTurns(1).start(task)[1]) for task in tasks]
    longest = max(map(len, prompts))
    end = chat.end_of_turn_id
    ids = torch.tensor([[end] * (longest - len(prompt)) + prompt for prompt in prompts], device=policy.device)
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=policy.device)
    settings = GenerationConfig(
        max_new_tokens=new_tokens, do_sample=True, top_k=0, eos_token_id=list(chat.end_of_turn_ids), pad_token_id=end
    )
    with torch.inference_mode():
        output = policy.model.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
    ends = torch.isin(output[:, longest:], torch.tensor(chat.end_of_turn_ids, device=policy.device))
    generated = int((ends.cumsum(1) - ends.int() == 0).sum())  # up to and with the first end
    return generated, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a folder, a .gguf file, gguf:PACKAGE or a Hub id")
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--slots", type=int, nargs="+", default=[128])
    parser.add_argument("--new-tokens", type=int, default=48, help="a turn")
    parser.add_argument("--turns", type=int, default=4, help="of the multi-turn measurement")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()

    settings = PolicyConfig(model_name=arguments.model, max_total_sequence_length=512)
    policy = load_policy(settings, device=pick_device(EngineConfig()), seed=0)
    tasks = [
        Task(role=Role.SOLVER, group_id=f"g{row // 8}", question=f"Who moved review number {row // 8}?")
        for row in range(arguments.rows)
    ]
    parameters = sum(weight.numel() for weight in policy.model.parameters())
    print(f"{arguments.model}: {parameters / 1e6:.2f}M parameters, {arguments.rows} rows, groups of 8, {policy.device}")
    print(f"{torch.get_num_threads()} threads; best of {arguments.repeats}; tokens generated / s")

    def best(label: str, run: Any) -> None:
        run()
        results = [run() for _ in range(arguments.repeats)]
        tokens, seconds = min(results, key=lambda result: result[1] / result[0])
        print(f"{label:44s} {tokens / seconds:10.0f}   ({tokens} tokens in {seconds:.2f} s)", flush=True)

    best("transformers generate, one turn", lambda: theirs(policy, tasks, arguments.new_tokens))
    for slots in arguments.slots:
        best(f"ours, one turn, {slots} slots", lambda s=slots: ours(policy, tasks, 1, s, arguments.new_tokens))
        best(
            f"ours, {arguments.turns} turns with results, {slots} slots",
            lambda s=slots: ours(policy, tasks, arguments.turns, s, arguments.new_tokens),
        )


if __name__ == "__main__":
    main()
