"""What a generated question must pass: the Proposer's checks, and to be another one than those before."""

from __future__ import annotations

from collections.abc import Callable

from corpus_index.document import Document
from corpus_index.folding import words
from rewards.refusal import ProposerChecks, check_proposal
from training.generators.base import Attempt

SAME_QUESTION = "same_question"
SAME_KEY = "same_key"


class Sieve:
    """Remembers what it let through. Two questions are one where their words are, or where the same mails give the same
    answer: another wording of what was asked teaches nothing new."""

    def __init__(self, read: Callable[[str], Document | None], checks: ProposerChecks) -> None:
        self._read = read
        self._checks = checks
        self._questions: set[tuple[str, ...]] = set()
        self._keys: set[tuple[frozenset[str], tuple[str, ...]]] = set()

    def refusal(self, attempt: Attempt) -> str:
        """The reason to drop it, empty where it is kept. Raises what reading a mail raises."""
        if attempt.trouble:
            return attempt.trouble
        refused = check_proposal(attempt.proposal, self._read, self._checks)
        if refused is not None:
            return refused.value
        said = attempt.proposal.submission
        assert said is not None, "check_proposal refuses a proposal without a submission"
        if words(said.question) in self._questions:
            return SAME_QUESTION
        if _key(said.answer, said.evidence) in self._keys:
            return SAME_KEY
        self.remember(said.question, said.answer, said.evidence)
        return ""

    def remember(self, question: str, answer: str, evidence: tuple[str, ...]) -> None:
        self._questions.add(words(question))
        self._keys.add(_key(answer, evidence))


def _key(answer: str, evidence: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    return frozenset(evidence), words(answer)
