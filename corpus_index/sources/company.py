"""A synthetic company whose mails are generated from known facts, so every question has an exact answer and evidence.

The same seed always gives the same mails. Names come in three disjoint splits: no person, project or vendor of a
``test`` or ``validation`` company can occur in a ``train`` company, whatever the seed.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from corpus_index.document import Document
from corpus_index.sources.company_mails import Draft, entity_names, write_mails
from corpus_index.sources.company_spec import CompanySpec, parse_spec
from corpus_index.sources.company_words import RELATIONS

MAILBOXES = ("sales", "finance", "operations", "research")


@dataclass(frozen=True, slots=True)
class Fact:
    """``subject --relation--> value``; ``mails`` state it and are current, newest first."""

    relation: str
    subject: str
    value: str
    mails: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompanyQuestion:
    """A question whose answer follows from ``chain`` (relations, first hop first) applied to ``entity``."""

    question: str
    answer: str
    evidence: tuple[str, ...]
    entity: str
    chain: tuple[str, ...]

    @property
    def hops(self) -> int:
        return len(self.chain)


class Company:
    """Mails, facts, questions, and an oracle for any question in the company's own wordings."""

    def __init__(self, spec: CompanySpec) -> None:
        self.spec = spec
        rng = random.Random(f"futari company {spec.seed} {spec.split}")
        self.entities = entity_names(spec, rng)
        people = self.entities["person"]
        self._drafts = write_mails(spec, rng, self.entities)
        width = max(4, len(str(2 * len(self._drafts))))
        ids = rng.sample(range(10 ** (width - 1), 10**width), len(self._drafts))
        self._ids = [str(i) for i in ids]
        mailbox = {p: rng.choice(MAILBOXES) for p in people}
        for draft in self._drafts:
            draft.sender = draft.sender or rng.choice(people)
        self._documents = tuple(
            self._document(i, d, mailbox[d.sender], rng.choice(people))
            for i, d in zip(self._ids, self._drafts, strict=True)
        )

    def _document(self, document_id: str, draft: Draft, mailbox: str, to: str) -> Document:
        return Document(
            id=document_id,
            subject=draft.subject,
            body=draft.body,
            date=draft.date,
            sender=address(draft.sender),
            sender_name=draft.sender,
            recipients=(address(to),),
            recipient_names=(to,),
            thread=draft.thread or draft.subject.removeprefix("Fw: "),
            mailbox=mailbox,
            folder="inbox",
            source=f"company:{self.spec.split}:{self.spec.seed}/{document_id}",
        )

    def documents(self) -> tuple[Document, ...]:
        """All mails, exact copies included (cleaning drops them)."""
        return self._documents

    @cached_property
    def facts(self) -> dict[tuple[str, str], Fact]:
        """Keyed by (relation, entity). ``project`` is ``owner`` read backwards."""
        mails: dict[tuple[str, str, str], list[tuple[datetime, str]]] = defaultdict(list)
        for document_id, draft in zip(self._ids, self._drafts, strict=True):
            for fact in draft.facts:
                mails[fact].append((draft.date, document_id))
                if fact[0] == "owner":
                    mails["project", fact[2], fact[1]].append((draft.date, document_id))
        return {
            (relation, subject): Fact(relation, subject, value, tuple(i for _, i in sorted(told, reverse=True)))
            for (relation, subject, value), told in mails.items()
        }

    @cached_property
    def by_mail(self) -> dict[str, tuple[Fact, ...]]:
        """The current facts each mail states; a mail without one (chatter, outdated) is absent."""
        found: dict[str, list[Fact]] = defaultdict(list)
        for fact in self.facts.values():
            for mail in fact.mails:
                found[mail].append(fact)
        return {mail: tuple(facts) for mail, facts in found.items()}

    @cached_property
    def reverse(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Keyed by (relation, value): the entities that have it."""
        found: dict[tuple[str, str], list[str]] = defaultdict(list)
        for fact in self.facts.values():
            found[fact.relation, fact.value].append(fact.subject)
        return {key: tuple(subjects) for key, subjects in found.items()}

    def follow(self, entity: str, chain: Sequence[str]) -> tuple[Fact, ...] | None:
        """The facts along ``chain``, or None where a link is missing or leads back to where it came from."""
        path: list[Fact] = []
        seen = {entity}
        for relation in chain:
            fact = self.facts.get((relation, entity))
            if fact is None or fact.value in seen:
                return None
            path.append(fact)
            entity = fact.value
            seen.add(entity)
        return tuple(path)

    def question(self, rng: random.Random, entity: str, chain: Sequence[str]) -> CompanyQuestion | None:
        path = self.follow(entity, chain)
        if path is None:
            return None
        text = phrase(entity, chain, rng)
        return CompanyQuestion(text, path[-1].value, tuple(f.mails[-1] for f in path), entity, tuple(chain))

    def questions(self, hops: int, count: int, seed: int = 0, *, at_most: bool = False) -> list[CompanyQuestion]:
        """``count`` distinct questions, spread evenly over chains and entities.

        Raises ValueError if too few exist, unless ``at_most``: then all there are.
        """
        rng = random.Random(f"questions {self.spec.seed} {self.spec.split} {hops} {seed}")
        found: list[CompanyQuestion] = []
        pools = {chain: rng.sample(e := self.entities[RELATIONS[chain[0]].domain], len(e)) for chain in chains(hops)}
        while len(found) < count and any(pools.values()):
            for chain, pool in pools.items():
                while pool:
                    question = self.question(rng, pool.pop(), chain)
                    if question is not None:
                        found.append(question)
                        break
        if len(found) < count and not at_most:
            raise ValueError(
                f"this company has {len(found)} {hops}-hop questions, {count} were asked for; "
                f"raise projects (now {self.spec.projects})"
            )
        return found[:count]

    def parse(self, question: str) -> CompanyQuestion | None:
        """The oracle: what a question in our wordings really asks, with its true answer and hops; None if not ours."""
        text = " ".join(question.split()).rstrip("?").strip().lower()
        for relation, form in RELATIONS.items():
            for wording in form.questions:
                head, _, tail = wording.rstrip("?").lower().partition("{x}")
                if text.startswith(head) and text.endswith(tail) and len(text) > len(head) + len(tail):
                    inner = text[len(head) : len(text) - len(tail) or None]
                    parsed = self._parse_noun(inner)
                    if parsed is None:
                        continue
                    entity, chain = parsed[0], (*parsed[1], relation)
                    path = self.follow(entity, chain)
                    if path is not None:
                        return CompanyQuestion(
                            question, path[-1].value, tuple(f.mails[-1] for f in path), entity, chain
                        )
        return None

    def _parse_noun(self, text: str) -> tuple[str, tuple[str, ...]] | None:
        if text in self._by_lower:
            return self._by_lower[text], ()
        for relation, form in RELATIONS.items():
            head = form.noun.removesuffix("{x}").lower()
            if head and text.startswith(head):
                inner = self._parse_noun(text[len(head) :])
                return None if inner is None else (inner[0], (*inner[1], relation))
        return None

    @cached_property
    def _by_lower(self) -> dict[str, str]:
        return {name.lower(): name for names in self.entities.values() for name in names}


def address(name: str) -> str:
    return f"{name.lower().replace(' ', '.')}@futari.example"


def chains(hops: int) -> list[tuple[str, ...]]:
    """All relation chains of this length whose kinds fit and that do not undo themselves."""
    if hops == 1:
        return [(r,) for r in RELATIONS]
    undo = {("owner", "project"), ("project", "owner")}
    return [
        (*chain, relation)
        for chain in chains(hops - 1)
        for relation, form in RELATIONS.items()
        if RELATIONS[chain[-1]].range == form.domain and (chain[-1], relation) not in undo
    ]


def phrase(entity: str, chain: Sequence[str], rng: random.Random) -> str:
    inner = entity
    for relation in chain[:-1]:
        inner = RELATIONS[relation].noun.format(x=inner)
    return rng.choice(RELATIONS[chain[-1]].questions).format(x=inner)


def documents_from_spec(text: str) -> Iterator[Document]:
    """Raises SourceError at the call, not at the first mail."""
    return iter(Company(parse_spec(text)).documents())
