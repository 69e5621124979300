from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections import Counter
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus_index.pipeline import prepare
from corpus_index.sources import SourceError, read_items
from corpus_index.sources.company import Company, CompanyQuestion, chains, documents_from_spec, phrase
from corpus_index.sources.company_spec import SPLITS, CompanySpec, parse_spec
from corpus_index.sources.company_words import RELATIONS
from training.config_load import load_config

ROOT = Path(__file__).resolve().parents[2]
ALL = 10**9
DIGEST = """
import hashlib
from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import CompanySpec
company = Company(CompanySpec(seed=5, projects=12))
told = (company.documents(), company.facts, company.questions(2, 40))
print(hashlib.sha256(repr(told).encode()).hexdigest())
"""


def company(seed: int = 3, projects: int = 24, **spec: float | str) -> Company:
    return Company(CompanySpec(seed=seed, projects=projects, **spec))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def firm() -> Company:
    return company()


# --- the same seed, the same mails ------------------------------------------------------------------------------------


def test_the_seed_and_the_split_decide_every_mail() -> None:
    assert company(5).documents() == company(5).documents()
    assert company(5).documents() != company(6).documents()
    assert company(5).documents() != company(5, split="test").documents()


def test_mails_do_not_depend_on_the_process_or_its_hash_seed() -> None:
    told = company(5, 12)
    mine = hashlib.sha256(repr((told.documents(), told.facts, told.questions(2, 40))).encode()).hexdigest()
    for hash_seed in ("0", "77"):
        run = subprocess.run(
            [sys.executable, "-c", DIGEST], cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert run.stdout.strip() == mine


def test_a_spec_gives_the_mails_of_its_company() -> None:
    assert tuple(documents_from_spec("seed=5,projects=12,split=test")) == company(5, 12, split="test").documents()


def test_ids_are_unique_and_of_one_width(firm: Company) -> None:
    ids = [document.id for document in firm.documents()]
    assert len(set(ids)) == len(ids)
    assert {len(i) for i in ids} == {4}
    assert all(i.isdecimal() for i in ids)


def test_splits_share_no_name_whatever_the_seed() -> None:
    seen: dict[str, set[str]] = {split: set() for split in SPLITS}
    for split in SPLITS:
        for seed in range(8):
            for names in company(seed, 120, split=split).entities.values():
                seen[split].update(names)
    for one, other in combinations(SPLITS, 2):
        assert not seen[one] & seen[other], (one, other)
    assert len(seen["train"]) > 1000  # many seeds really gave many names


def test_names_of_one_company_are_all_different(firm: Company) -> None:
    names = [name for kind in firm.entities.values() for name in kind]
    assert len(names) == len(set(names))


# --- facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_mail_of_a_fact_states_it(seed: int) -> None:
    firm = company(seed)
    mails = {document.id: document for document in firm.documents()}
    assert {relation for relation, _ in firm.facts} == set(RELATIONS)
    for fact in firm.facts.values():
        assert fact.mails
        dates = [mails[i].date for i in fact.mails]
        assert dates == sorted(dates, reverse=True)  # type: ignore[type-var]
        for mail in (mails[i] for i in fact.mails):
            assert fact.subject in mail.body
            assert fact.value in mail.body
            named, told = (fact.value, fact.subject) if fact.relation == "project" else (fact.subject, fact.value)
            assert named in mail.subject
            assert told not in mail.subject


def test_every_entity_has_every_fact_of_its_kind(firm: Company) -> None:
    for relation, form in RELATIONS.items():
        told = {subject for of, subject in firm.facts if of == relation}
        assert told == set(firm.entities[form.domain]), relation


def test_an_outdated_review_states_no_fact() -> None:
    for seed in range(3):
        firm = company(seed, 20, duplicates=0.0, moved=0.25, forwards=0.3)
        mails = {document.id: document for document in firm.documents()}
        moved = 0
        for project in firm.entities["project"]:
            current = firm.facts["room", project].mails
            assert firm.facts["time", project].mails == current
            thread = [i for i, mail in mails.items() if mail.thread == f"review {project}"]
            outdated = set(thread) - set(current)
            moved += bool(outdated)
            for i in outdated:
                assert firm.facts["room", project].value not in mails[i].body
                assert i not in firm.by_mail
                assert all(mails[i].date < mails[j].date for j in current)  # type: ignore[operator]
        assert moved == 5


def test_by_mail_and_reverse_are_the_facts_turned_round(firm: Company) -> None:
    told = {(fact.relation, fact.subject, i) for fact in firm.facts.values() for i in fact.mails}
    assert told == {(fact.relation, fact.subject, i) for i, facts in firm.by_mail.items() for fact in facts}
    for (relation, value), subjects in firm.reverse.items():
        assert all(firm.facts[relation, subject].value == value for subject in subjects)
    assert sum(map(len, firm.reverse.values())) == len(firm.facts)
    # Some mails tell nothing: chatter, copies, outdated reviews.
    assert set(firm.by_mail) < {document.id for document in firm.documents()}


@pytest.mark.parametrize("seed", range(4))
def test_cleaning_drops_the_copies_and_keeps_every_mail_that_a_fact_names(seed: int) -> None:
    spec = f"seed={seed},projects=20,duplicates=0.2"
    documents, report = prepare(f"company:{spec}")
    kept = {document.id: document for document in documents}
    firm = Company(parse_spec(spec))
    assert {i for fact in firm.facts.values() for i in fact.mails} <= set(kept)
    copies = len(firm.documents()) - len(Company(parse_spec(spec.replace("0.2", "0.0"))).documents())
    assert copies > 10
    assert report.dropped == {"exact_duplicate": copies}
    ids = [document.id for document in firm.documents()]
    assert set(ids) - set(kept) == set(ids[-copies:])


# --- questions --------------------------------------------------------------------------------------------------------


def test_chains_fit_their_kinds_and_never_undo_a_step() -> None:
    for hops in (1, 2, 3):
        found = chains(hops)
        assert len(found) == len(set(found))
        for chain in found:
            assert len(chain) == hops
            for one, two in pairwise(chain):
                assert RELATIONS[one].range == RELATIONS[two].domain
                assert {one, two} != {"owner", "project"}
    assert len(chains(1)) == 12
    # Independent count: person facts 5 (desk, phone, manager, team, project), project 5, vendor 1, team 1.
    # owner>4, manager>5, project>4 (owner undoes it), vendor>1, team>1
    assert len(chains(2)) == 4 + 5 + 4 + 1 + 1


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_question_parses_back_to_itself(seed: int, hops: int) -> None:
    firm = company(seed)
    mails = {document.id: document for document in firm.documents()}
    asked = firm.questions(hops, ALL, at_most=True)
    assert {question.chain for question in asked} == set(chains(hops))
    for question in asked:
        assert firm.parse(question.question) == question
        assert question.hops == hops == len(question.evidence)
        # Followed by hand through the facts.
        at = question.entity
        for relation, mail in zip(question.chain, question.evidence, strict=True):
            fact = firm.facts[relation, at]
            assert mail in fact.mails
            assert at in mails[mail].body
            at = fact.value
        assert question.answer == at
        assert question.answer not in question.question


def test_every_wording_is_understood_in_any_case_and_spacing(firm: Company) -> None:
    for hops in (1, 2, 3):
        for chain in chains(hops):
            domain = firm.entities[RELATIONS[chain[0]].domain]
            entity = next(e for e in domain if firm.follow(e, chain) is not None)
            path = firm.follow(entity, chain)
            assert path is not None
            # As many draws as wordings are too few to be sure of all: take each wording in turn.
            inner = phrase(entity, chain, random.Random(0))
            noun = next(
                inner[len(head) : len(inner) - len(tail)]
                for head, _, tail in (wording.partition("{x}") for wording in RELATIONS[chain[-1]].questions)
                if inner.startswith(head) and inner.endswith(tail)
            )
            for wording in RELATIONS[chain[-1]].questions:
                text = wording.format(x=noun)
                for said in (text, text.upper(), f"  {text.lower().removesuffix('?').replace(' ', '  ')}\n"):
                    parsed = firm.parse(said)
                    assert parsed is not None, said
                    assert (parsed.entity, parsed.chain, parsed.answer) == (entity, chain, path[-1].value)
                    assert parsed.question == said


def test_questions_are_distinct_spread_and_repeatable(firm: Company) -> None:
    asked = firm.questions(2, 120, seed=4)
    assert len({question.question for question in asked}) == 120
    assert asked == firm.questions(2, 120, seed=4)
    assert asked != firm.questions(2, 120, seed=5)
    per_chain = Counter(question.chain for question in asked)
    assert set(per_chain) == set(chains(2))
    # Even over chains, but for the chain that starts from the few vendors or teams and runs dry: none does here.
    assert max(per_chain.values()) - min(per_chain.values()) <= 1
    starts = Counter((question.chain, question.entity) for question in asked)
    assert set(starts.values()) == {1}


def test_too_many_questions_is_an_error_that_says_what_to_do(firm: Company) -> None:
    every = firm.questions(1, ALL, at_most=True)
    assert len(every) == sum(len(firm.entities[form.domain]) for form in RELATIONS.values())
    with pytest.raises(ValueError, match=rf"has {len(every)} 1-hop questions, {len(every) + 1} were.*projects"):
        firm.questions(1, len(every) + 1)


def test_the_quick_start_has_a_benchmark_of_hundreds_of_questions_over_a_hundred_entities() -> None:
    part = load_config(ROOT / "examples/configs/selfplay_quickstart.yaml").evaluation
    firm = Company(parse_spec(part.source.removeprefix("company:")))
    assert firm.spec.split == "test"
    asked: list[CompanyQuestion] = []
    for hops, share in part.hops.items():
        asked += firm.questions(hops, round(share * part.questions), seed=part.seed)
    assert len({question.question for question in asked}) == len(asked) >= 400
    assert len({question.entity for question in asked}) >= 100
    assert {question.hops for question in asked} == {1, 2, 3}


# --- the oracle refuses -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "?", "Who owns ?", "Who owns", "Who owns Nothing At All?", "What is the weather?", "the owner of", "\x00"],
)
def test_foreign_questions_are_not_parsed(firm: Company, text: str) -> None:
    assert firm.parse(text) is None


def test_a_name_alone_or_of_another_kind_is_no_question(firm: Company) -> None:
    person, project = firm.entities["person"][0], firm.entities["project"][0]
    assert firm.parse(person) is None
    assert firm.parse(f"Who owns {person}?") is None
    assert firm.parse(f"Where does {project} sit?") is None
    assert firm.parse(f"Who owns {project} now?") is None
    assert firm.parse(f"Which desk does the owner of {person} have?") is None
    other = company(4, split="test").entities["project"][0]
    assert firm.parse(f"Who owns {other}?") is None


def test_a_chain_that_leads_back_is_refused(firm: Company) -> None:
    project = firm.entities["project"][0]
    owner = firm.facts["owner", project].value
    assert firm.parse(f"Who owns the project owned by {owner}?") is None
    assert firm.parse(f"Which project does the owner of {project} own?") is None
    assert firm.follow(project, ("owner", "project")) is None

    def manager(of: Company, person: str) -> str:
        return of.facts["manager", person].value

    circles = [
        (each, person)
        for each in map(company, range(12))
        for person in each.entities["person"]
        if manager(each, manager(each, person)) == person
    ]
    assert circles  # two people who report to each other
    for each, person in circles:
        assert each.parse(f"Who is the manager of the manager of {person}?") is None
        assert each.parse(f"Who is the manager of {person}?") is not None


@given(st.text(max_size=80) | st.sampled_from(["Who owns {}?", "Where does the manager of {} sit?"]))
def test_the_oracle_never_raises_and_knows_no_strangers(text: str) -> None:
    assert company_of_hypothesis.parse(text) is None


company_of_hypothesis = company(0, 4)


# --- specs ------------------------------------------------------------------------------------------------------------


def test_a_spec_is_read_with_its_types() -> None:
    spec = parse_spec("seed=7,projects=80,split=validation,moved=0.5")
    assert spec == CompanySpec(seed=7, projects=80, split="validation", moved=0.5)
    assert parse_spec("") == CompanySpec()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("people=5", r"'people=5'.*seed, split, projects"),
        ("seed", r"'seed'.*key=value"),
        ("projects=many", r"'projects=many'.*projects is a int"),
        ("moved=often", r"'moved=often'.*moved is a float"),
        ("split=dev", r"'dev'.*train, validation, test"),
        ("projects=3", r"projects=3: expected 4 to 300"),
        ("projects=301", r"projects=301: expected 4 to 300"),
        ("moved=1.5", r"moved=1.5: expected a share from 0 to 1"),
        ("duplicates=-0.1", r"duplicates=-0.1: expected a share from 0 to 1"),
        ("chatter=nan", r"chatter=nan: expected a share from 0 to 1"),
    ],
)
def test_a_wrong_spec_names_the_key_and_the_value(text: str, named: str) -> None:
    with pytest.raises(SourceError, match=named):
        parse_spec(text)
    with pytest.raises(SourceError, match=named):
        read_items(f"company:{text}")  # at the call, like any other source


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("projects", [4, 300])
def test_the_smallest_and_the_largest_company_of_each_split_can_be_built(split: str, projects: int) -> None:
    firm = company(1, projects, split=split)
    assert len(firm.entities["project"]) == projects == len(firm.entities["person"])
    ids = [document.id for document in firm.documents()]
    assert len(set(ids)) == len(ids)
