"""Questions of a file as a training set: shuffled anew for every pass, the same at a step however a run got there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from corpus_index.backends.base import SearchIndex
from corpus_index.retries import RetrySettings, retried
from environments.questions import Question, QuestionFileError, corpus_fingerprint, load_questions
from training.passes import dealt


class QuestionDeck:
    """An endless row of passes over ``questions`` (``training.passes``). A question that a step holds twice makes two
    groups."""

    def __init__(self, questions: Sequence[Question], seed: int, *, shuffle: bool = True) -> None:
        if not questions:
            raise ValueError("no questions to train on; expected at least one")
        self.questions = tuple(questions)
        self._seed = seed
        self._shuffle = shuffle

    def deal(self, step: int, count: int) -> list[Question]:
        """The ``count`` questions of a step; steps are counted from 1."""
        places = dealt(len(self.questions), count, step, self._seed, shuffle=self._shuffle)
        return [self.questions[place] for place in places]


def open_deck(
    path: Path,
    index: SearchIndex,
    ids: Collection[str],
    *,
    seed: int,
    shuffle: bool,
    patience: RetrySettings,
    say: Callable[[str], None],
) -> QuestionDeck:
    """The questions of ``path``, each of whose evidence mails is in ``index``, which holds the mails ``ids``.

    Raises QuestionFileError, which names the first mail that is missing; OSError; IndexUnavailable.
    """
    questions = load_questions(path)
    held = frozenset(ids)
    for question in questions:
        for mail_id in question.evidence:
            if not _is_there(mail_id, question, index, held, patience):
                built = f" (it was built from {question.corpus})" if question.corpus else ""
                raise QuestionFileError(
                    f"{path}: question {question.id!r} needs mail {mail_id!r}, which {index.locator} does not hold or "
                    f"its scope leaves out{built}; set corpus.source, corpus.index and scope to what the questions "
                    "were asked of, or build them anew with examples/make_tasks.py"
                )
    others = {question.fingerprint for question in questions} - {"", corpus_fingerprint(ids)}
    if others:
        say(f"{path} was built from other mails than {index.locator} holds (fingerprint {', '.join(sorted(others))}); "
            "its evidence is all there")  # fmt: skip
    return QuestionDeck(questions, seed, shuffle=shuffle)


def _is_there(
    mail_id: str, question: Question, index: SearchIndex, held: Collection[str], patience: RetrySettings
) -> bool:
    if mail_id not in held or question.scope is None:
        return mail_id in held
    view = index.within(question.scope)
    return retried(lambda: view.read(mail_id), patience) is not None
