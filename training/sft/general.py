"""Set A: chats without a system prompt, answered by the model itself before it is trained.

Its own answers are what the model says anyway, so their loss is at its minimum at the start: training on them holds the
model where it is, while set B moves it where there is a system prompt.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import parse_spec
from environments.chat_format import ChatFormat
from environments.chat_rows import ChatMessage, ChatRow, record
from environments.episode import Episode, EpisodeState, Observation
from environments.json_lines import read_lines, save_lines
from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory
from rewards.endpoint import Endpoint
from rewards.replies import EndpointFault
from training.config import Config
from training.engines.base import Engine, Sampling
from training.recipe import COMPANY
from training.sft.samples import Sample

_COMPANY_PROMPTS = 400


class GeneralPrompt(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Annotated[str, Field(min_length=1)]
    language: str = ""


class OwnAnswer(BaseModel):
    """``token_ids`` are the prompt's and the answer's, as sampled; ``prompt_tokens`` of them are not trained on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: str
    language: str
    answer: str
    token_ids: tuple[int, ...]
    prompt_tokens: int

    def sample(self, number: int) -> Sample:
        size = len(self.token_ids)
        messages = ({"role": "user", "content": self.prompt}, {"role": "assistant", "content": self.answer})
        trajectory = Trajectory(
            uid=f"general/{number}",
            task=Task(role=Role.SOLVER, group_id=f"general/{number}", question=self.prompt),
            token_ids=self.token_ids,
            loss_mask=(0,) * self.prompt_tokens + (1,) * (size - self.prompt_tokens),
            logprobs=(0.0,) * size,
            stop_reason=StopReason.SUBMITTED,
            policy_version=0,
            turn_starts=(self.prompt_tokens,),
            messages=messages,
        )
        return Sample(trajectory, "general", self.language)


def row_of_answer(sample: Sample) -> ChatRow:
    """The chat row that other trainers read."""
    messages = tuple(ChatMessage.model_validate(message) for message in sample.trajectory.messages)
    return ChatRow(id=sample.trajectory.uid, messages=messages, labels={"set": "general", "language": sample.language})


def load_prompts(config: Config) -> list[GeneralPrompt]:
    """``sft.general.prompts``, each once. Raises LineFileError for a broken line, ValueError for too few prompts."""
    part = config.sft.general
    if part.prompts.startswith(COMPANY):
        company = Company(parse_spec(part.prompts.removeprefix(COMPANY)))
        count = part.max_prompts or _COMPANY_PROMPTS  # of each number of hops
        prompts = [
            GeneralPrompt(prompt=question.question, language="en")
            for hops in (1, 2)
            for question in company.questions(hops, count, seed=config.sft.seed, at_most=True)
        ]
    elif part.prompts.endswith(".jsonl"):
        prompts = [prompt for _, prompt in read_lines(Path(part.prompts), GeneralPrompt)]
    else:
        lines = Path(part.prompts).read_text(encoding="utf-8").splitlines()
        prompts = [GeneralPrompt(prompt=line) for line in lines if line.strip()]
    prompts = list(dict.fromkeys(prompts))
    random.Random(config.sft.seed).shuffle(prompts)  # a file may be sorted by topic
    prompts = prompts[: part.max_prompts]
    if len(prompts) <= part.held_out:
        raise ValueError(
            f"{part.prompts} has {len(prompts)} different prompts and sft.general.held_out is {part.held_out}: give "
            "more prompts, or hold out fewer"
        )
    return prompts


class PlainChat(Episode):
    """One user message without a system prompt, one answer, no tools."""

    asynchronous: ClassVar[bool] = False  # pyright: ignore[reportIncompatibleMethodOverride]

    def start(self, task: Task) -> tuple[EpisodeState, list[dict[str, str]]]:
        return EpisodeState(task), [{"role": "user", "content": task.question}]

    def step(self, state: EpisodeState, text: str) -> tuple[Observation, EpisodeState]:
        return Observation("", True), replace(state, turn=1, stop_reason=StopReason.SUBMITTED)


def general_set(
    config: Config, engine: Engine | None, chat: ChatFormat, folder: Path, say: Callable[[str], None]
) -> list[Sample]:
    """Answers of the present weights, ``samples_per_prompt`` each.

    They are kept in ``folder`` and read from there when the stage is started again. Raises ValueError where no prompt
    got an answer, or where the policy is to answer and there is no engine in this process.
    """
    prompts = load_prompts(config)
    path = folder / "general_answers.jsonl"
    kept = [answer for _, answer in read_lines(path, OwnAnswer)] if path.is_file() else []
    asked = [prompt for prompt in prompts for _ in range(config.sft.general.samples_per_prompt)]
    if [(answer.prompt, answer.language) for answer in kept] != [(each.prompt, each.language) for each in asked]:
        by_endpoint = config.sft.general.answerer == "endpoint"
        kept = _served(asked, config, chat, say) if by_endpoint else _sampled(asked, config, engine)
        save_lines(path, kept)
    samples = [answer.sample(number) for number, answer in enumerate(kept)]
    return [sample for sample in samples if sample.trajectory.sampled_tokens]


def held_out_answers(samples: Sequence[Sample], config: Config) -> tuple[list[Sample], list[Sample]]:
    """(train, held out), by prompt."""
    names = list(dict.fromkeys(sample.trajectory.task.question for sample in samples))
    held = set(names[: config.sft.general.held_out])
    return (
        [sample for sample in samples if sample.trajectory.task.question not in held],
        [sample for sample in samples if sample.trajectory.task.question in held],
    )


def _sampled(asked: Sequence[GeneralPrompt], config: Config, engine: Engine | None) -> list[OwnAnswer]:
    if engine is None or config.engine.name != "local":  # a cluster's actors play our episodes alone
        raise ValueError(
            "sft.general.answerer policy samples on the local engine and engine.name is nemo_rl: serve the model that "
            "the stage starts from, name it in sft.general.endpoint, and set answerer to endpoint"
        )
    tasks = [
        Task(role=Role.SOLVER, group_id=f"general/{number}", question=prompt.prompt)
        for number, prompt in enumerate(asked)
    ]
    own = engine.episode
    engine.episode = PlainChat(own.toolbox)
    try:
        played = engine.rollout(tasks, Sampling(seed=config.sft.seed))
    finally:
        engine.episode = own
    return [
        OwnAnswer(
            prompt=prompt.prompt,
            language=prompt.language,
            answer=trajectory.messages[-1]["content"],
            token_ids=trajectory.token_ids,
            prompt_tokens=len(trajectory.token_ids) - trajectory.sampled_tokens,
        )
        for prompt, trajectory in zip(asked, played, strict=True)
    ]


def _served(
    asked: Sequence[GeneralPrompt], config: Config, chat: ChatFormat, say: Callable[[str], None]
) -> list[OwnAnswer]:
    """Prompts that the endpoint failed stay in the list without an answer, and are not trained on."""
    settings = config.sft.general.endpoint
    if settings.temperature != 1.0:
        say(
            f"sft.general.endpoint.temperature is {settings.temperature}: away from 1 the answers are not as likely as "
            "the model holds them"
        )
    endpoint = Endpoint(settings)

    def answer(numbered: tuple[int, GeneralPrompt]) -> OwnAnswer:
        number, prompt = numbered
        messages = [{"role": "user", "content": prompt.prompt}]
        text = endpoint.chat(messages, seed=config.sft.seed + number)
        recorded = record([*messages, {"role": "assistant", "content": text}], chat)
        size = len(recorded.token_ids)
        return OwnAnswer(
            prompt=prompt.prompt, language=prompt.language, answer=text, token_ids=tuple(recorded.token_ids),
            prompt_tokens=size - sum(recorded.loss_mask),
        )  # fmt: skip

    try:
        replies = endpoint.each(answer, list(enumerate(asked)))
    finally:
        endpoint.close()
    faults = [reply for reply in replies if isinstance(reply, EndpointFault)]
    if len(faults) == len(replies):
        raise ValueError(f"no prompt of set A got an answer; the last fault: {faults[-1]}")
    if faults:
        say(f"{len(faults)} of {len(asked)} prompts of set A got no answer, for example: {faults[0]}")
    return [
        OwnAnswer(prompt=prompt.prompt, language=prompt.language, answer="", token_ids=(), prompt_tokens=0)
        if isinstance(reply, EndpointFault)
        else reply
        for prompt, reply in zip(asked, replies, strict=True)
    ]
