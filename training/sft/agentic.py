"""Set B: episodes of both roles under their system prompts, from a file of chat rows or from the scripted experts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from corpus_index.backends import open_memory_index
from corpus_index.backends.base import SearchIndex
from environments.chat_format import ChatFormat
from environments.chat_rows import ChatRow, load_rows
from environments.task import Task
from environments.trajectory import Trajectory
from training.config import Config
from training.sft.samples import Sample
from training.warm_start import company_demonstrations, sft_company


@dataclass(frozen=True)
class AgenticSet:
    """``tasks`` are those of the held-out episodes; they are played on ``index``, where None is the recipe's corpus."""

    train: list[Sample]
    held_out: list[Sample]
    index: SearchIndex | None = None

    @property
    def tasks(self) -> list[Task]:
        return [sample.trajectory.task for sample in self.held_out]


def agentic_set(config: Config, chat: ChatFormat) -> AgenticSet:
    """The rows of ``sft.agentic.data_path``, or the experts' episodes.

    Raises LineFileError for a broken file, ValueError where nothing is left to train on.
    """
    part = config.sft.agentic
    if part.data_path is None:
        return _experts(config, chat)
    rows = load_rows(Path(part.data_path))
    if part.held_out_path is not None:
        held = load_rows(Path(part.held_out_path))
    else:
        random.Random(config.sft.seed).shuffle(rows)
        held, rows = rows[: part.held_out], rows[part.held_out :]
    if not rows or not held:
        raise ValueError(
            f"{part.data_path}: {len(rows)} rows to train on and {len(held)} held out (sft.agentic.held_out "
            f"{part.held_out}); both need one at least"
        )
    longest = config.policy.max_total_sequence_length
    train = [sample for row in rows if _fits(sample := agentic_sample(row, chat), longest)]
    kept = [sample for row in held if _fits(sample := agentic_sample(row, chat), longest)]
    if not train or not kept:
        raise ValueError(
            f"{part.data_path}: no row fits policy.max_total_sequence_length {longest}; raise it or shorten the rows"
        )
    return AgenticSet(train, kept)


def agentic_sample(row: ChatRow, chat: ChatFormat) -> Sample:
    return Sample(row.trajectory(chat), "agentic", row.labels.get("language", ""))


def _fits(sample: Sample, longest: int) -> bool:
    return len(sample.trajectory.token_ids) <= longest


def _experts(config: Config, chat: ChatFormat) -> AgenticSet:
    """``samples`` episodes over ``sft.companies`` companies, ``held_out`` over one more."""
    part, companies = config.sft.agentic, config.sft.companies
    train: list[Trajectory] = []
    for number in range(companies):
        stream = company_demonstrations(config, chat, sft_company(config, number))
        train += [next(stream) for _ in range(number, part.samples, companies)]
    unseen = sft_company(config, companies)
    stream = company_demonstrations(config, chat, unseen)
    held_out = [next(stream) for _ in range(part.held_out)]
    return AgenticSet(_english(train), _english(held_out), open_memory_index(unseen.documents()))


def _english(trajectories: list[Trajectory]) -> list[Sample]:
    return [Sample(trajectory, "agentic", "en") for trajectory in trajectories]
