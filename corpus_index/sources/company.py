"""A synthetic company whose mails are generated from known facts, so every question has an exact answer and evidence.

The same seed always gives the same mails. Names come in three disjoint splits: no person, project or vendor of a
``test`` or ``validation`` company can occur in a ``train`` company, whatever the seed.

Spec form: ``company:seed=7,projects=80,split=train`` (every key optional).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import cached_property

from corpus_index.document import Document
from corpus_index.sources import company_words as words
from corpus_index.sources.company_words import RELATIONS
from corpus_index.sources.items import SourceError

SPLITS = ("train", "validation", "test")
MAILBOXES = ("sales", "finance", "operations", "research")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanySpec:
    """Shares are fractions of the fact mails. ``moved`` reviews have an outdated mail beside the valid one."""

    seed: int = 0
    split: str = "train"
    projects: int = 80
    moved: float = 0.25
    chatter: float = 0.25
    forwards: float = 0.08
    duplicates: float = 0.05

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise SourceError(f"company split {self.split!r}: expected one of {', '.join(SPLITS)}")
        if not 4 <= self.projects <= 300:
            raise SourceError(f"company projects={self.projects}: expected 4 to 300")
        for name in ("moved", "chatter", "forwards", "duplicates"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise SourceError(f"company {name}={share}: expected a share from 0 to 1")


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


@dataclass(slots=True)
class _Draft:
    subject: str
    body: str
    date: datetime
    facts: tuple[tuple[str, str, str], ...] = ()
    thread: str = ""
    sender: str = ""


def _pairs(rng: random.Random, first: Sequence[str], second: Sequence[str], count: int, split: str) -> list[str]:
    """``count`` two-word names from the split's own share of all pairs (6/8 train, 1/8 each of the others)."""
    mine = {"train": range(2, 8), "validation": range(1, 2), "test": range(1)}[split]
    names = [f"{a} {b}" for i, a in enumerate(first) for j, b in enumerate(second) if (5 * i + 3 * j) % 8 in mine]
    if count > len(names):
        raise ValueError(f"the {split} split has {len(names)} names of this kind, {count} were asked for")
    return rng.sample(names, count)


@dataclass(slots=True)
class _Writer:
    """Draws facts and writes the mails that tell them."""

    spec: CompanySpec
    rng: random.Random
    drafts: list[_Draft] = field(default_factory=list)

    def day(self, low: int, high: int) -> datetime:
        minutes = self.rng.randrange(8 * 60, 18 * 60)
        return datetime(2024, 1, 8, tzinfo=UTC) + timedelta(days=self.rng.randrange(low, high), minutes=minutes)

    def tell(self, relation: str, x: str, y: str) -> None:
        form = RELATIONS[relation]
        subject = self.rng.choice(form.subjects).format(x=x)
        body = self.rng.choice(form.bodies).format(x=x, y=y)
        self.drafts.append(_Draft(subject, body, self.day(0, 90), ((relation, x, y),)))

    def review(self, project: str, moved: bool) -> None:
        form = RELATIONS["room"]
        slots = self.rng.sample([(r, n) for r in words.ROOM for n in range(10, 100)], 2)
        times = [
            f"{self.rng.choice(words.DAY)} at {self.rng.randrange(9, 18)}:{self.rng.choice(('00', '30'))}"
            for _ in range(2)
        ]
        told = [(f"{room} {number}", time) for (room, number), time in zip(slots, times, strict=True)]
        first, last = told[0], told[1 if moved else 0]
        facts = (("room", project, last[0]), ("time", project, last[1]))
        draft = _Draft(
            self.rng.choice(form.subjects).format(x=project),
            self.rng.choice(form.bodies).format(x=project, y=first[0], t=first[1]),
            self.day(0, 60),
            () if moved else facts,
            thread=f"review {project}",
        )
        self.drafts.append(draft)
        if moved:
            self.drafts.append(
                _Draft(
                    self.rng.choice(words.MOVED_SUBJECTS).format(x=project),
                    self.rng.choice(words.MOVED_BODIES).format(x=project, y=last[0], t=last[1]),
                    draft.date + timedelta(days=self.rng.randrange(1, 20)),
                    facts,
                    thread=f"review {project}",
                )
            )

    def chatter(self, people: Sequence[str], projects: Sequence[str]) -> None:
        subject, body = self.rng.choice(words.CHATTER)
        a, b = self.rng.sample(people, 2)
        named = {"p": self.rng.choice(projects), "a": a, "b": b}
        self.drafts.append(_Draft(subject.format(**named), body.format(**named), self.day(0, 120)))

    def forward(self, original: _Draft) -> None:
        note = self.rng.choice(words.FORWARD_NOTE)
        body = f"{note}\n\n-----Original Message-----\nSubject: {original.subject}\n\n{original.body}"
        self.drafts.append(
            _Draft(
                f"Fw: {original.subject}",
                body,
                original.date + timedelta(days=1, minutes=self.rng.randrange(600)),
                original.facts,
                thread=original.thread,
            )
        )


class Company:
    """Mails, facts, questions, and an oracle for any question in the company's own wordings."""

    def __init__(self, spec: CompanySpec) -> None:
        self.spec = spec
        rng = random.Random(f"futari company {spec.seed} {spec.split}")
        n = spec.projects
        people = _pairs(rng, words.FIRST, words.LAST, n, spec.split)
        projects = _pairs(rng, words.ADJECTIVE, words.NOUN, n, spec.split)
        vendors = _pairs(rng, words.VENDOR, words.TRADE, max(2, min(n // 2, 40)), spec.split)
        teams = _pairs(rng, words.TEAM, words.ANIMAL, max(2, min(n // 6, 16)), spec.split)
        self.entities: dict[str, tuple[str, ...]] = {
            "person": tuple(people),
            "project": tuple(projects),
            "vendor": tuple(vendors),
            "team": tuple(teams),
        }
        self._drafts = self._write(_Writer(spec, rng))
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

    def _write(self, w: _Writer) -> list[_Draft]:
        rng, spec = w.rng, self.spec
        people, projects, vendors, teams = (self.entities[k] for k in ("person", "project", "vendor", "team"))
        owners = rng.sample(people, len(projects))

        def number(count: int) -> list[int]:
            """Distinct, so that a value has one owner."""
            return rng.sample(range(1000, 10000), count)

        budgets, desks = number(len(projects)), number(len(people))
        phones, contracts = number(len(people)), number(len(vendors))
        moved = set(rng.sample(projects, round(spec.moved * len(projects))))
        for k, project in enumerate(projects):
            w.tell("owner", project, owners[k])
            w.review(project, project in moved)
            w.tell("budget", project, f"${budgets[k]}")
            w.tell("vendor", project, vendors[k % len(vendors)])
        for k, person in enumerate(people):
            w.tell("desk", person, f"{desks[k] // 100}-{desks[k] % 100:02d}")
            w.tell("phone", person, str(phones[k]))
            w.tell("manager", person, rng.choice([p for p in people if p != person]))
            w.tell("team", person, rng.choice(teams))
        for k, vendor in enumerate(vendors):
            w.tell("contract", vendor, f"C{contracts[k]}")
        for team, floor in zip(teams, rng.sample(range(2, 60), len(teams)), strict=True):
            w.tell("floor", team, str(floor))
        told = list(w.drafts)
        for _ in range(round(spec.chatter * len(told))):
            w.chatter(people, projects)
        for draft in rng.sample([d for d in told if d.facts], round(spec.forwards * len(told))):
            w.forward(draft)
        copied = rng.sample(told, round(spec.duplicates * len(told)))
        rng.shuffle(w.drafts)
        # Copies come last, so cleaning keeps the originals, whose ids the facts name.
        for draft in copied:
            draft.sender = rng.choice(people)
            w.drafts.append(_Draft(draft.subject, draft.body, draft.date, (), draft.thread, draft.sender))
        return w.drafts

    def _document(self, document_id: str, draft: _Draft, mailbox: str, to: str) -> Document:
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


def parse_spec(text: str) -> CompanySpec:
    """``seed=7,projects=80,split=test``; raises SourceError naming the unknown or ill-typed key."""
    types: dict[str, type[int] | type[float] | type[str]] = {
        f.name: type(getattr(CompanySpec(), f.name)) for f in fields(CompanySpec)
    }
    values: dict[str, int | float | str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if key not in types or not equals:
            raise SourceError(f"company spec {part!r}: expected key=value with a key of {', '.join(types)}")
        try:
            values[key] = types[key](value)
        except ValueError as error:
            raise SourceError(f"company spec {part!r}: {key} is a {types[key].__name__}") from error
    return CompanySpec(**values)  # type: ignore[arg-type]


def documents_from_spec(text: str) -> Iterator[Document]:
    """Raises SourceError at the call, not at the first mail."""
    return iter(Company(parse_spec(text)).documents())
