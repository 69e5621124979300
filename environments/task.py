"""What one episode is asked to do. Every trajectory of a group shares one Task, so its prompt is byte-identical."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from corpus_index.scope import MailScope


class Role(StrEnum):
    PROPOSER = "proposer"
    SOLVER = "solver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """``group_id`` is the group: equal prompts under different ids stay different groups.

    A Proposer task carries ``hops`` and a ``seed`` (what to start exploring from); a Solver task carries ``question``.
    ``answer`` and ``evidence`` are the key, never shown to the policy. ``tool_variant`` picks the wording of the tool
    descriptions (drawn per group). ``parent`` links a Solver task to the proposal's trajectory uid. The tools see only
    the mails of ``scope``, on top of whatever limits the index already; None: all that it holds.

    ``opening`` stands in a Solver's prompt before the question: mails to read, or a hint. ``turns`` lowers the number
    of turns; with a single one nothing could be done with a tool's result, so there are no tools but ``submit``.
    """

    role: Role
    group_id: str
    hops: int = 1
    seed: str = ""
    question: str = ""
    answer: str = ""
    evidence: tuple[str, ...] = ()
    tool_variant: int = 0
    parent: str = ""
    scope: MailScope | None = None
    opening: str = ""
    turns: int | None = None

    @property
    def without_tools(self) -> bool:
        return self.turns == 1
