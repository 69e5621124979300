"""What one member of a Proposer group plays, and what its Solvers do, as data: no neural net, no chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from scripted_play import Script

from corpus_index.document import Document
from environments.protocol import render_call

SOLVERS = 8
"""Solver rollouts of one question."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A Solver that opens ``opens`` and then submits ``answer``; None: it never submits."""

    answer: str | None
    opens: tuple[str, ...] = ()

    def script(self) -> Script:
        for mail in self.opens:
            yield render_call("read_mail", {"id": mail})
        while self.answer is None:
            yield "I do not know"
        yield render_call("submit", {"answer": self.answer, "evidence": list(self.opens or ("0000",))})


SILENT = Reply(None)


@dataclass(frozen=True, slots=True)
class Hand:
    """A proposal: ``opens`` the mails, then submits. ``replies`` are its Solvers', repeated up to ``SOLVERS``."""

    question: str
    answer: str
    evidence: tuple[str, ...]
    opens: tuple[str, ...]
    replies: tuple[Reply, ...]

    def script(self) -> Script:
        for mail in self.opens:
            yield render_call("read_mail", {"id": mail})
        yield render_call("submit", {"question": self.question, "answer": self.answer, "evidence": list(self.evidence)})


@dataclass(frozen=True, slots=True)
class Fact:
    """A true question of the corpus. A Solver that goes astray reports ``near``, from the mail ``near_mail``."""

    question: str
    answer: str
    evidence: tuple[str, ...]
    near: str
    near_mail: str


Deal = Callable[[int], Hand]
"""The n-th hand of its kind; different facts for different numbers."""


@dataclass(frozen=True, slots=True)
class Hack:
    """One way to be paid for nothing. ``deal`` plays beside honest members in groups that ask for ``hops``.

    ``steps`` in a row are played, and the last half of them counts: some hacks pay only until they are noticed.
    """

    name: str
    how: str
    hops: int
    deal: Deal
    steps: int = 1


@dataclass(frozen=True)
class Ground:
    """A corpus with what the plays know of it: true questions by hops, and the hacks that it allows."""

    name: str
    mails: Mapping[str, Document]
    facts: Mapping[int, Sequence[Fact]]
    hacks: Sequence[Hack]

    def honest(self, hops: int) -> Deal:
        return lambda number: honest(pick(self.facts[hops], number))


def pick(facts: Sequence[Fact], number: int) -> Fact:
    """Round and round: two groups need 16 facts before a hack and an honest member ask the same."""
    return facts[number % len(facts)]


def right(fact: Fact) -> Reply:
    return Reply(fact.answer, fact.evidence)


def honest(fact: Fact) -> Hand:
    """A true question that half of the Solvers answer; of the others half go astray and half find nothing."""
    replies = (right(fact), Reply(fact.near, (fact.near_mail,)), right(fact), SILENT)
    return Hand(fact.question, fact.answer, fact.evidence, fact.evidence, replies)
