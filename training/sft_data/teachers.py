"""Who plays the tasks. A teacher's episode comes back as a row, or as the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from environments.chat_rows import ChatRow
from rewards.replies import Usage
from training.sft_data.tasks import TaughtTask


@dataclass(frozen=True, slots=True)
class Try:
    """The ``sample``-th episode of a task."""

    taught: TaughtTask
    sample: int

    @property
    def uid(self) -> str:
        return f"{self.taught.task.group_id}/{self.sample}"


class Solved(BaseModel):
    """One try that is over. ``row`` is None where ``trouble`` says why; ``tokens`` are what a server counted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uid: str
    row: ChatRow | None = None
    trouble: str = ""
    tokens: Usage = Usage()


class Teacher(Protocol):
    @property
    def name(self) -> str: ...

    def play(self, tries: Sequence[Try], landed: Callable[[Solved], None]) -> None:
        """Play each and tell ``landed`` of it as soon as it is over, from any thread. A try of which nobody tells has
        met trouble that is not its own, and is played again by the next command.

        Raises Unavailable where a service is away.
        """
        ...
