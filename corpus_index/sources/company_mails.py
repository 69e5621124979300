"""Draws a synthetic company's names and facts, and writes the mails that tell them.

Every draw comes from one generator, in an order that is part of the format: another order is another company.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from corpus_index.sources import company_words as words
from corpus_index.sources.company_spec import CompanySpec
from corpus_index.sources.company_words import RELATIONS


@dataclass(slots=True)
class Draft:
    """A mail to be; ``facts`` are what it states that is current, as (relation, subject, value)."""

    subject: str
    body: str
    date: datetime
    facts: tuple[tuple[str, str, str], ...] = ()
    thread: str = ""
    sender: str = ""


def entity_names(spec: CompanySpec, rng: random.Random) -> dict[str, tuple[str, ...]]:
    """People, projects, vendors and teams by kind, of the split's own names."""
    n = spec.projects
    people = _pairs(rng, words.FIRST, words.LAST, n, spec.split)
    projects = _pairs(rng, words.ADJECTIVE, words.NOUN, n, spec.split)
    vendors = _pairs(rng, words.VENDOR, words.TRADE, max(2, min(n // 2, 40)), spec.split)
    teams = _pairs(rng, words.TEAM, words.ANIMAL, max(2, min(n // 6, 16)), spec.split)
    return {"person": tuple(people), "project": tuple(projects), "vendor": tuple(vendors), "team": tuple(teams)}


def write_mails(spec: CompanySpec, rng: random.Random, entities: Mapping[str, Sequence[str]]) -> list[Draft]:
    """Facts about ``entities`` by kind, the mails that tell them, noise, and copies at the end."""
    w = _Writer(spec, rng)
    people, projects, vendors, teams = (entities[kind] for kind in ("person", "project", "vendor", "team"))
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
        w.drafts.append(Draft(draft.subject, draft.body, draft.date, (), draft.thread, draft.sender))
    return w.drafts


@dataclass(slots=True)
class _Writer:
    """Draws facts and writes the mails that tell them."""

    spec: CompanySpec
    rng: random.Random
    drafts: list[Draft] = field(default_factory=list)

    def day(self, low: int, high: int) -> datetime:
        minutes = self.rng.randrange(8 * 60, 18 * 60)
        return datetime(2024, 1, 8, tzinfo=UTC) + timedelta(days=self.rng.randrange(low, high), minutes=minutes)

    def tell(self, relation: str, x: str, y: str) -> None:
        form = RELATIONS[relation]
        subject = self.rng.choice(form.subjects).format(x=x)
        body = self.rng.choice(form.bodies).format(x=x, y=y)
        self.drafts.append(Draft(subject, body, self.day(0, 90), ((relation, x, y),)))

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
        draft = Draft(
            self.rng.choice(form.subjects).format(x=project),
            self.rng.choice(form.bodies).format(x=project, y=first[0], t=first[1]),
            self.day(0, 60),
            () if moved else facts,
            thread=f"review {project}",
        )
        self.drafts.append(draft)
        if moved:
            self.drafts.append(
                Draft(
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
        self.drafts.append(Draft(subject.format(**named), body.format(**named), self.day(0, 120)))

    def forward(self, original: Draft) -> None:
        note = self.rng.choice(words.FORWARD_NOTE)
        body = f"{note}\n\n-----Original Message-----\nSubject: {original.subject}\n\n{original.body}"
        self.drafts.append(
            Draft(
                f"Fw: {original.subject}",
                body,
                original.date + timedelta(days=1, minutes=self.rng.randrange(600)),
                original.facts,
                thread=original.thread,
            )
        )


def _pairs(rng: random.Random, first: Sequence[str], second: Sequence[str], count: int, split: str) -> list[str]:
    """``count`` two-word names from the split's own share of all pairs (6/8 train, 1/8 each of the others)."""
    mine = {"train": range(2, 8), "validation": range(1, 2), "test": range(1)}[split]
    names = [f"{a} {b}" for i, a in enumerate(first) for j, b in enumerate(second) if (5 * i + 3 * j) % 8 in mine]
    if count > len(names):
        raise ValueError(f"the {split} split has {len(names)} names of this kind, {count} were asked for")
    return rng.sample(names, count)
