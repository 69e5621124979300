from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import combinations, islice, pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_index.document import Document
from corpus_index.entities import tokenise
from corpus_index.graph import GraphSettings, MailGraph, MailPath, Node, nodes_of
from corpus_index.sources import open_source
from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import CompanySpec


def mail(mail_id: str, body: str, subject: str = "", **fields: object) -> Document:
    return Document(id=mail_id, subject=subject, body=body, **fields)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def firm() -> Company:
    return Company(CompanySpec(seed=5, projects=40, duplicates=0.0))


@pytest.fixture(scope="module")
def graph(firm: Company) -> MailGraph:
    return MailGraph(firm.documents())


def paths(graph: MailGraph, hops: int, draws: int = 400) -> list[MailPath]:
    rng = random.Random(hops)
    return [path for _ in range(draws) if (path := graph.sample_path(hops, rng)) is not None]


def test_nodes_of_a_mail() -> None:
    document = mail(
        "1", "Mira Okafor has it.\n-----Original Message-----\nOld Harbor", "Re: Amber Falcon owner",
        sender="ann@x.org", recipients=("bob@x.org",), thread="t1", date=datetime(2024, 3, 5, 23, tzinfo=UTC),
    )  # fmt: skip
    assert nodes_of(document, 64) == [
        Node("person", "ann@x.org"),
        Node("person", "bob@x.org"),
        Node("subject", "amber falcon owner"),
        Node("thread", "t1"),
        Node("date", "2024-03-05"),
        Node("entity", "amber falcon"),
        Node("entity", "mira okafor"),
    ]
    assert len(nodes_of(document, 3)) == 3


def test_what_is_in_one_mail_or_in_too_many_links_nothing() -> None:
    documents = [mail(str(n), "see Amber Falcon" + (" and Iron Reef" if n < 3 else " and Jade Kite" * (n == 9)))
                 for n in range(10)]  # fmt: skip
    graph = MailGraph(documents, GraphSettings(max_mails=9))
    assert graph.mails(Node("entity", "amber falcon")) == ()
    assert graph.mails(Node("entity", "jade kite")) == ()
    assert graph.mails(Node("entity", "iron reef")) == ("0", "1", "2")
    assert graph.weight(Node("entity", "iron reef")) == pytest.approx(math.log(10 / 3))
    assert graph.weight(Node("entity", "jade kite")) == 0.0
    assert graph.counts() == {"mails": 10, "entity": 1, "person": 0, "subject": 0, "thread": 0, "date": 0}


def test_the_companys_own_two_hop_evidence_is_linked_by_the_thing_between(firm: Company, graph: MailGraph) -> None:
    """Recall against the facts: the entity between the hops links the two mails wherever it is rare enough."""
    linked = common = 0
    questions = firm.questions(2, 150, seed=1)
    for asked in questions:
        between = firm.facts[asked.chain[0], asked.entity].value
        held = graph.mails(Node("entity", between.lower()))
        if held:
            linked += set(asked.evidence) <= set(held)
        else:
            common += 1
    assert common < 40  # a team of which everybody writes
    assert linked == len(questions) - common


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_paths_are_simple_linked_and_without_a_shortcut(firm: Company, graph: MailGraph, hops: int) -> None:
    text = {d.id: f"{d.subject}\n{d.body}".lower() for d in firm.documents()}
    found = paths(graph, hops)
    assert len(found) > 40
    for path in found:
        assert path.hops == hops == len(set(path.mails))
        assert len(path.links) == hops - 1
        for link, pair in zip(path.links, pairwise(path.mails), strict=True):
            assert all(link.text in text[m] for m in pair)
        for i, j in combinations(range(hops), 2):
            shared = [n for n in entities(graph) if {path.mails[i], path.mails[j]} <= set(graph.mails(n))]
            assert bool(shared) == (j == i + 1)
        assert path.start
        for thing in path.start:
            assert thing in text[path.mails[0]]
            assert not any(m in graph.mails(Node("entity", thing)) for m in path.mails[1:])


def entities(graph: MailGraph) -> Iterator[Node]:
    return (node for node in graph.nodes() if node.kind == "entity")


def test_rare_links_are_drawn_more_often() -> None:
    documents = [mail("a", "ask Amber Falcon, Iron Reef, Jade Kite")]
    documents += [mail(f"b{n}", "see Amber Falcon") for n in range(8)] + [mail("c", "see Iron Reef")]
    documents += [mail("d", "see Jade Kite too"), mail("e", "see Jade Kite again")]
    graph = MailGraph(documents)
    drawn = [p.links[0].text for p in paths(graph, 2, 3000) if p.mails[0] == "a"]
    falcon, reef = math.log(12 / 9), math.log(12 / 2)
    assert drawn.count("amber falcon") / drawn.count("iron reef") == pytest.approx(falcon / reef, abs=0.15)


def test_same_seed_same_paths_and_no_dependence_on_hash_seeds(graph: MailGraph, firm: Company) -> None:
    assert paths(graph, 2, 50) == paths(MailGraph(firm.documents()), 2, 50)


def test_other_kinds_link_where_the_settings_say(firm: Company) -> None:
    graph = MailGraph(firm.documents(), GraphSettings(links=("date",)))
    found = paths(graph, 2, 100)
    date = {d.id: d.date for d in firm.documents()}
    assert found
    assert all(d is not None and d.date().isoformat() == p.links[0].text for p in found for d in map(date.get, p.mails))


def test_a_corpus_without_links_has_no_path() -> None:
    rng = random.Random(0)
    assert MailGraph([]).sample_path(1, rng) is None
    assert MailGraph([mail("1", "see Amber Falcon"), mail("2", "see Iron Reef")]).sample_path(2, rng) is None
    with pytest.raises(ValueError, match="hops is 0"):
        MailGraph([]).sample_path(0, rng)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sets(st.sampled_from(["Aa Bb", "Kk Dd", "Ee Ff", "Gg Hh"]), max_size=3), max_size=12))
def test_nodes_count_as_a_plain_count_does(named: list[set[str]]) -> None:
    graph = MailGraph([mail(str(n), "see " + ", ".join(sorted(things))) for n, things in enumerate(named)],
                      GraphSettings(max_mails=4))  # fmt: skip
    for thing in ("Aa Bb", "Kk Dd", "Ee Ff", "Gg Hh"):
        holding = tuple(str(n) for n, things in enumerate(named) if thing in things)
        assert graph.mails(Node("entity", thing.lower())) == (holding if 2 <= len(holding) <= 4 else ())


def test_paths_over_real_mail(shared_data: Path) -> None:
    source = open_source(f"maildir:{shared_data / 'enron' / 'enron-categories.tar.xz'}")
    kept = {d.id: d for d in islice(source, 500)}
    graph = MailGraph(kept.values())
    found = paths(graph, 2, 300)
    assert len(found) > 30
    assert len({path.mails for path in found}) > 0.8 * len(found)
    for path in found:
        said = [" ".join(named_words(kept[m])) for m in path.mails]
        assert all(path.links[0].text in words for words in said)


def named_words(document: Document) -> list[str]:
    return [token.word for token in tokenise(f"{document.subject}\n{document.body}")]
