"""Questions over the known facts of a synthetic company, in its own wordings."""

from __future__ import annotations

import random
from collections.abc import Sequence

from corpus_index.document import Document
from corpus_index.graph import MailPath
from corpus_index.sources.company import Company, CompanyQuestion, Fact
from training.game import random_question
from training.generators.base import Attempt, CannotWrite, Draft, written

MOST_CHAINS = 64  # of facts along one path; a mail states a handful


class TemplateGenerator:
    """Uniform over relation chains, then over what they can start from."""

    name = "templates"

    def __init__(self, company: Company, seed: int, per_round: int) -> None:
        self._company = company
        self._seed = seed
        self._per_round = per_round

    def round(self, number: int, hops: int) -> list[Attempt]:
        rng = random.Random(f"{self._seed}/templates/{number}")
        asked = [random_question(self._company, hops, rng) for _ in range(self._per_round)]
        return [written(self.name, hops, _draft(question, question.evidence)) for question in asked]


class TemplateWriter:
    """Puts a path of the graph into words where the company's facts lead along it."""

    def __init__(self, company: Company) -> None:
        self._company = company

    def write(self, path: MailPath, mails: Sequence[Document], rng: random.Random) -> Draft:
        """Raises CannotWrite where the mails state no facts, or facts of which none leads to the next."""
        rows = self._rows(path)
        if not rows:
            raise CannotWrite("no_facts")
        facts = rng.choice(rows)
        question = self._company.question(rng, facts[0].subject, [fact.relation for fact in facts])
        if question is None:
            raise CannotWrite("circular")
        return _draft(question, path.mails)  # the company's own evidence may be another mail that says the same

    def _rows(self, path: MailPath) -> list[list[Fact]]:
        """The rows of facts, one a mail, in which each is about what the one before says."""
        rows: list[list[Fact]] = [[fact] for fact in self._company.by_mail.get(path.mails[0], ())]
        for mail_id in path.mails[1:]:
            told = self._company.by_mail.get(mail_id, ())
            rows = [[*row, fact] for row in rows for fact in told if fact.subject == row[-1].value][:MOST_CHAINS]
        return rows


def _draft(asked: CompanyQuestion, evidence: tuple[str, ...]) -> Draft:
    return Draft(
        question=asked.question, answer=asked.answer, evidence=evidence, entity=asked.entity, kind=">".join(asked.chain)
    )
