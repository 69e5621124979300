"""Mails as a graph: mails that name the same rare thing are neighbours, and a path of them is a question's skeleton.

Nodes are mails and the people, threads, subjects, named things and days that mails have. A question of h hops needs h
mails in a row, each naming something that only the next one tells more about; ``MailGraph.sample_path`` draws such a
row. What is in too many mails links nothing: it would make everybody a neighbour of everybody.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from corpus_index.document import Document
from corpus_index.entities import named_things
from corpus_index.quoting import bare_subject, split_quoted

NodeKind = Literal["entity", "person", "subject", "thread", "date"]


@dataclass(frozen=True, slots=True)
class Node:
    """``text`` is folded: a named thing's words, an address (a name where there is none), a subject without Re, a
    thread's id, an ISO day."""

    kind: NodeKind
    text: str


class GraphSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    max_mails: Annotated[int, Field(ge=2)] = 20
    """A node of more mails than this links nothing and is forgotten."""
    max_nodes: Annotated[int, Field(ge=1)] = 64
    """Nodes of one mail; those that come later in its text are left out."""
    links: Annotated[tuple[NodeKind, ...], Field(min_length=1)] = ("entity",)
    """Kinds of node that may lead from one mail of a path to the next."""


@dataclass(frozen=True, slots=True)
class MailPath:
    """``mails`` are ``[hops]`` different ids; ``links[i]`` is what mails i and i + 1 share. ``start`` are the things
    that only the first mail of the path names, by which a question can point at it."""

    mails: tuple[str, ...]
    links: tuple[Node, ...]
    start: tuple[str, ...]

    @property
    def hops(self) -> int:
        return len(self.mails)


class MailGraph:
    """Built in one pass over the mails. Memory grows with the number of different nodes, at most ``max_nodes`` a mail,
    and not with the text; a node's list of mails ends at ``max_mails``."""

    def __init__(self, documents: Iterable[Document], settings: GraphSettings | None = None) -> None:
        self.settings = settings or GraphSettings()
        self.ids: list[str] = []
        most = self.settings.max_mails
        postings: dict[Node, list[int]] = {}
        for place, document in enumerate(documents):
            self.ids.append(document.id)
            for node in nodes_of(document, self.settings.max_nodes):
                held = postings.setdefault(node, [])
                if len(held) <= most:  # one more than a link may have tells that it has too many
                    held.append(place)
        self._mails = {node: tuple(held) for node, held in postings.items() if 2 <= len(held) <= most}
        self._nodes: list[list[Node]] = [[] for _ in self.ids]
        for node, held in self._mails.items():
            for place in held:
                self._nodes[place].append(node)

    def mails(self, node: Node) -> tuple[str, ...]:
        """The ids of the mails that have this node, in source order; none where they are fewer than 2 or too many."""
        return tuple(self.ids[place] for place in self._mails.get(node, ()))

    def nodes(self) -> Iterable[Node]:
        """All that link two mails or more."""
        return self._mails.keys()

    def counts(self) -> dict[str, int]:
        """Mails, and linking nodes by kind."""
        counted = {"mails": len(self.ids)} | dict.fromkeys(get_args(NodeKind), 0)
        for node in self._mails:
            counted[node.kind] += 1
        return counted

    def weight(self, node: Node) -> float:
        """ln(mails / mails with the node): how telling a link is. 0 for one that is unknown."""
        held = len(self._mails.get(node, ()))
        return math.log(len(self.ids) / held) if held else 0.0

    def sample_path(self, hops: int, rng: random.Random) -> MailPath | None:
        """One random simple path of ``hops`` mails, or None where this draw led nowhere.

        The first mail is uniform, each link is drawn by ``weight``, each next mail uniform. Only neighbours in the path
        share a linking node, so that no mail can be left out, and the first mail names something that no other does.
        Raises ValueError for hops below 1.
        """
        if hops < 1:
            raise ValueError(f"hops is {hops}; a path has at least 1 mail")
        if not self.ids:
            return None
        places = [rng.randrange(len(self.ids))]
        links: list[Node] = []
        while len(places) < hops:
            taken = self._linking(places[-1])
            earlier = {node for place in places[:-1] for node in self._linking(place)}
            open_links = [node for node in taken if node not in earlier and self.weight(node) > 0]
            if not open_links:
                return None
            link = rng.choices(open_links, [self.weight(node) for node in open_links])[0]
            following = [p for p in self._mails[link] if p not in places and earlier.isdisjoint(self._linking(p))]
            if not following:
                return None
            places.append(rng.choice(following))
            links.append(link)
        others = {node for place in places[1:] for node in self._nodes[place]}
        start = tuple(n.text for n in self._nodes[places[0]] if n.kind == "entity" and n not in others)
        return MailPath(tuple(self.ids[place] for place in places), tuple(links), start) if start else None

    def _linking(self, place: int) -> list[Node]:
        return [node for node in self._nodes[place] if node.kind in self.settings.links]


def nodes_of(document: Document, most: int) -> list[Node]:
    """The nodes of one mail, each once. Quoted text names nothing: the mail that it quotes does."""
    new, _ = split_quoted(document.body)
    subject = bare_subject(document.subject)
    people = (document.sender or document.sender_name, *(document.recipients or document.recipient_names))
    nodes = [Node("person", person.casefold()) for person in people if person]
    if subject:
        nodes.append(Node("subject", subject))
    if document.thread:
        nodes.append(Node("thread", document.thread))
    if document.date is not None:
        nodes.append(Node("date", document.date.date().isoformat()))
    nodes += [Node("entity", thing) for thing in named_things(f"{document.subject}\n{new}")]
    return list(dict.fromkeys(nodes))[:most]
