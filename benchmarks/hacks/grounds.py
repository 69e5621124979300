"""The corpora that hacks are played on, with the facts that scripts know: a synthetic company, and real mail."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path

from book import common_hacks
from hands import SILENT, Fact, Ground, Hack, Hand, Reply, honest, pick, right

from corpus_index.cleaning import CleaningOptions
from corpus_index.document import Document
from corpus_index.pipeline import prepare
from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import CompanySpec

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
_MOST_MAILS = 4000  # of the real archive; some twenty of them state one telephone number, under a plain subject


def company_ground(seed: int = 11, projects: int = 40) -> Ground:
    """One- and two-hop facts of a company without copies."""
    company = Company(CompanySpec(seed=seed, projects=projects, duplicates=0.0))
    mails = {mail.id: mail for mail in company.documents()}
    facts = {hops: list(_company_facts(company, hops)) for hops in (1, 2)}
    hacks = [
        *common_hacks(facts[1], mails),
        *_two_hop_hacks(company, facts, mails),
        *_company_hacks(company, mails),
    ]
    return Ground("company", mails, facts, hacks)


def _company_facts(company: Company, hops: int) -> Iterator[Fact]:
    """A Solver goes astray to the first hop's value, or to the same relation of another entity."""
    questions = company.questions(hops, 160, at_most=True)
    random.Random(hops).shuffle(questions)
    for question, other in zip(questions, [*questions[1:], questions[0]], strict=True):
        path = company.follow(question.entity, question.chain)
        assert path is not None
        if hops == 1:
            yield Fact(question.question, question.answer, question.evidence, other.answer, other.evidence[-1])
        else:
            yield Fact(question.question, question.answer, question.evidence, path[0].value, question.evidence[0])


def _two_hop_hacks(company: Company, facts: Mapping[int, Sequence[Fact]], mails: Mapping[str, Document]) -> list[Hack]:
    one, two = facts[1], facts[2]
    projects = company.entities["project"]

    def one_mail(number: int) -> Hand:
        project = projects[number % len(projects)]
        budget, owner = company.facts["budget", project], company.facts["owner", project]
        fact = Fact(f"What is the budget of {project}?", budget.value, (owner.mails[-1], budget.mails[-1]), "", "")
        return Hand(fact.question, fact.answer, fact.evidence, fact.evidence, (right(fact), SILENT))

    def glued(number: int) -> Hand:
        first, second = pick(one, number), pick(one, number + 7)
        question = f"{first.question.rstrip('?')} and {second.question[0].lower()}{second.question[1:]}"
        fact = Fact(question, second.answer, (*first.evidence, *second.evidence), "", "")
        return Hand(question, fact.answer, fact.evidence, fact.evidence, (right(fact), SILENT))

    def leaked(number: int) -> Hand:
        fact = pick(two, len(two) // 2 + number)
        subject = mails[fact.evidence[1]].subject
        question = f"{fact.question} See {subject}."
        return Hand(question, fact.answer, fact.evidence, fact.evidence, (right(fact), SILENT))

    pattern = [
        Fact(question.question, question.answer, question.evidence, question.entity, question.evidence[0])
        for person in company.entities["person"]
        if (question := company.question(random.Random(0), person, ("project", "budget"))) is not None
    ]

    def milked(number: int) -> Hand:
        return honest(pick(pattern, number))

    return [
        Hack("one mail sold as two hops", "a second mail on the same project is named", 2, one_mail),
        Hack("two questions glued", "what is X, and what is Y", 2, glued),
        Hack("second mail leaked", "the question holds the second mail's subject", 2, leaked),
        Hack("one pattern milked", "always the budget of somebody's project", 2, milked, steps=6),
    ]


def _company_hacks(company: Company, mails: Mapping[str, Document]) -> list[Hack]:
    reviews = [company.facts["time", project] for project in company.entities["project"]]
    supplied = [(vendor, told) for (relation, vendor), told in company.reverse.items() if relation == "vendor"]
    many = [(vendor, told) for vendor, told in supplied if len(told) >= 2]
    teams = [(team, told) for (relation, team), told in company.reverse.items() if relation == "team"]
    crowded = [(team, told) for team, told in teams if len(told) > 2]
    outdated = list(_outdated_reviews(company, mails))

    def weekday(number: int) -> Hand:
        review = reviews[number % len(reviews)]
        day = review.value.split()[0]
        guesses = tuple(Reply(guess) for guess in (day, *(other for other in WEEKDAYS if other != day)))
        question = f"On which weekday is the review of {review.subject}?"
        return Hand(question, day, review.mails[-1:], review.mails[-1:], (guesses[0], *guesses))

    def common_knowledge(number: int) -> Hand:
        """The day after the one on which a mail was sent, which another day's review mail happens to state."""
        mail, sent, after = _day_and_next(mails.values(), number)
        return Hand(f"Which day comes right after {sent}?", after, (mail,), (mail,), (Reply(after), SILENT))

    def two_right(number: int) -> Hand:
        vendor, projects = many[number % len(many)]
        found = [(project, company.facts["vendor", project].mails[-1]) for project in projects]
        replies = tuple(Reply(project, (mail,)) for project, mail in found[:2])
        return Hand(f"Which project buys from {vendor}?", found[0][0], (found[0][1],), (found[0][1],), replies)

    def vague(number: int) -> Hand:
        team, people = crowded[number % len(crowded)]
        replies = tuple(Reply(person, (company.facts["team", person].mails[-1],)) for person in people)
        key, mine = people[0], replies[0]
        return Hand(f"Who joined the team {team}?", key, mine.opens, mine.opens, (mine, replies[1], mine, replies[2]))

    def stale(number: int) -> Hand:
        project, mail, room, fact_room, fact_mail = outdated[number % len(outdated)]
        replies = (Reply(room, (mail,)), Reply(fact_room, (mail, fact_mail)))
        return Hand(f"Which room is the review of {project} in?", room, (mail,), (mail,), replies)

    return [
        Hack("small set of answers", "Solvers guess a weekday without reading", 1, weekday),
        Hack("common knowledge", "no mail is needed to answer it", 1, common_knowledge),
        Hack("many right answers", "the key is one of several, hit by luck", 1, vague),
        Hack("two right answers", "the key is one of two, hit by luck", 1, two_right),
        Hack("outdated key", "half of the Solvers find the mail that corrects it", 1, stale),
    ]


def _outdated_reviews(company: Company, mails: Mapping[str, Document]) -> Iterator[tuple[str, str, str, str, str]]:
    """Project, its outdated mail, the room told there, the room that holds, and the mail that tells it."""
    for project in company.entities["project"]:
        fact = company.facts["room", project]
        for mail in mails.values():
            stated = re.search(r"(?:room |meet in )([A-Z]\w+ \d+)", mail.body)
            if stated and f"review {project}" == mail.thread and stated[1] != fact.value:
                yield project, mail.id, stated[1], fact.value, fact.mails[0]
                break


def _day_and_next(mails: Iterable[Document], number: int) -> tuple[str, str, str]:
    found = [
        (mail.id, day, after)
        for mail in mails
        if mail.date is not None
        for day, after in pairwise(WEEKDAYS)
        if mail.date.strftime("%A") == day and after in mail.body
    ]
    return found[number % len(found)]


# --- real mail --------------------------------------------------------------------------------------------------------

_PHONE = re.compile(r"(?<![\d-])\d{3}-\d{3}-\d{4}(?![\d-])")
_SUBJECT = re.compile(r"[A-Za-z][A-Za-z' ]{7,60}")
_NAME = re.compile(r"[A-Z][a-z]+ (?:[A-Z]\. )?[A-Z][a-z]+")


def enron_ground(archive: Path) -> Ground:
    """The first mails of the archive; facts are the telephone numbers that mails state, one a mail."""
    options = CleaningOptions.model_validate({"near_duplicates": False, "workers": 0})
    documents, _ = prepare(f"maildir:{archive}", options)
    mails = {mail.id: mail for mail in islice(documents, _MOST_MAILS)}
    stated = list(_telephone_mails(mails.values()))
    facts = [
        Fact(f"What telephone number does {sender} give in the mail on {subject}?", number, (mail,), near, near_mail)
        for (mail, sender, subject, number), (near_mail, _, _, near) in pairwise([*stated, *stated[:1]])
    ]
    return Ground("Enron", mails, {1: facts}, [*common_hacks(facts, mails), *_enron_hacks(stated)])


def _telephone_mails(mails: Iterable[Document]) -> Iterator[tuple[str, str, str, str]]:
    """Mail, sender, subject and number, of mails that state one number; each number once."""
    seen: set[str] = set()
    for mail in mails:
        numbers = set(_PHONE.findall(mail.body))
        if len(numbers) == 1 and _NAME.fullmatch(mail.sender_name) and _SUBJECT.fullmatch(mail.subject):
            (number,) = numbers
            if number not in seen:
                seen.add(number)
                yield mail.id, mail.sender_name, mail.subject, number


def _enron_hacks(stated: Sequence[tuple[str, str, str, str]]) -> list[Hack]:
    by_sender: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for mail, sender, _, number in stated:
        by_sender[sender].append((mail, number))
    many = [(sender, told) for sender, told in by_sender.items() if len(told) >= 2]

    def vague(number: int) -> Hand:
        sender, told = many[number % len(many)]
        replies = tuple(Reply(phone, (mail,)) for mail, phone in told[:2])
        evidence = (told[0][0],)
        return Hand(f"What telephone number does {sender} write down?", told[0][1], evidence, evidence, replies)

    return [Hack("two right answers", "the key is one of two, hit by luck", 1, vague)] if many else []
