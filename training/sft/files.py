"""The stage's data as files for a trainer that reads OpenAI chat JSONL, in the order in which it is to be trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from environments.chat_format import ChatFormat
from environments.chat_rows import ChatRow, row_of, save_rows
from training.config import Config
from training.sft.general import row_of_answer
from training.sft.mixing import dual_mix
from training.sft.samples import Kind, Sample, token_kinds


@dataclass(frozen=True, slots=True)
class TrainFile:
    """What the file holds, in its order."""

    samples: tuple[Sample, ...]
    left_out: int
    """Samples with an assistant turn that is not to be trained, which such a trainer cannot leave out of its loss."""


def write_train_file(samples: Sequence[Sample], config: Config, chat: ChatFormat, path: Path) -> TrainFile:
    """Rows for ``sft.max_num_steps`` steps of ``sft.trajectories_per_step``, mixed by token share.

    Raises ValueError for ``sft.tokens_per_step``, which such a trainer does not know, and where a set is empty.
    """
    part = config.sft
    if part.tokens_per_step is not None:
        raise ValueError(
            f"sft.tokens_per_step is {part.tokens_per_step} and engine.name nemo_rl takes a fixed number of samples a "
            "step: set it to null and sft.trajectories_per_step instead"
        )
    whole = [sample for sample in samples if Kind.SLIP not in token_kinds(sample.trajectory, chat)]
    chosen = tuple(islice(dual_mix(whole, part), part.max_num_steps * part.trajectories_per_step))
    save_rows(path, map(chat_row, chosen))
    return TrainFile(chosen, len(samples) - len(whole))


def chat_row(sample: Sample) -> ChatRow:
    if sample.source == "general":
        return row_of_answer(sample)
    return row_of(sample.trajectory, labels={"set": "agentic", "language": sample.language})
