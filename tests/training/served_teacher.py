"""A stand-in for a served teacher: it solves and asks about a company by native tool calls, and rewrites thoughts.

It keeps nothing between requests: what to do next follows from the messages it is sent, as for a real model.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from chat_server import Reply, called, said

from corpus_index.sources.company import Company, Fact, chains, phrase
from corpus_index.sources.company_words import RELATIONS

Messages = Sequence[dict[str, Any]]
USAGE = (1000, 50)
Step = tuple[str, dict[str, Any], str]
"""Name, arguments and result of a call that was made."""


@dataclass(frozen=True)
class ServedTeacher:
    """``answer`` is a script for ``chat_server.serving``."""

    company: Company

    def answer(self, number: int, body: dict[str, Any]) -> Reply:
        messages = body["messages"]
        if "tools" not in body:
            return rewrite(messages)
        steps = steps_of(messages)
        user = messages[1]["content"]
        question = user.partition("uestion: ")[2]
        reply = self._solve(question, steps) if question else self._propose(user, steps)
        return reply or said("I do not know what to do.", usage=USAGE)

    def _solve(self, question: str, steps: Sequence[Step]) -> Reply | None:
        asked = self.company.parse(question)
        path = self.company.follow(asked.entity, asked.chain) if asked is not None else None
        if path is None:
            return None
        found = [_look_up(fact, steps) for fact in path]
        todo = next((step for step in found if not isinstance(step, str)), None)
        return todo or act("submit", {"answer": path[-1].value, "evidence": found}, f"So it is {path[-1].value}.")

    def _propose(self, user: str, steps: Sequence[Step]) -> Reply | None:
        hops = 2 if "hops: 2" in user or "2 different mails" in user else 1
        seed = user.partition("seed: ")[2].split(" | ")[0]
        if not any(name == "read_mail" for name, _, _ in steps):
            return act("read_mail", {"id": seed}, f"I begin with {seed}.")
        for fact in self.company.by_mail.get(seed, ()):
            for chain in chains(hops):
                path = self.company.follow(fact.subject, chain)
                if path is None or path[0] != fact or len({link.mails for link in path}) < hops:
                    continue
                found = [seed, *(_look_up(link, steps) for link in path[1:])]
                todo = next((step for step in found if not isinstance(step, str)), None)
                asked = {"question": phrase(fact.subject, chain, random.Random(0)), "answer": path[-1].value}
                return todo or act("submit", asked | {"evidence": found}, "This is worth asking.")
        return None


def act(name: str, arguments: dict[str, Any], thought: str) -> Reply:
    return called(name, arguments, reasoning_content=thought, usage=USAGE)


def steps_of(messages: Messages) -> list[Step]:
    """The calls so far with their results; a call and its result name each other."""
    steps: list[Step] = []
    for said_, result in pairwise(messages):
        for call in said_.get("tool_calls", ()):
            assert result["role"] == "tool"
            assert result["tool_call_id"] == call["id"]
            steps.append((call["function"]["name"], _arguments(call["function"]["arguments"]), result["content"]))
    return steps


def _arguments(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return {}  # one that the tests broke


def rewrite(messages: Messages) -> Reply:
    """Every thought in brackets, as a reply to a rewriting request."""
    asked = json.loads(messages[1]["content"])
    return said(json.dumps({"thoughts": [f"[{thought}]" for thought in asked["thoughts"]]}), usage=USAGE)


def _look_up(fact: Fact, steps: Sequence[Step]) -> str | Reply:
    """The mail that states the fact once it is read, or the next call on the way to it."""
    query = {"keywords": [fact.subject, RELATIONS[fact.relation].keyword]}
    hits = next((result for name, arguments, result in steps if arguments == query), None)
    if hits is None:
        return act("search_keyword", query, f"I look for {fact.subject}.")
    shown = [line.split(" | ")[0] for line in hits.splitlines()]
    mail = next((mail_id for mail_id in shown if mail_id in fact.mails), None)
    if mail is None:
        return said("Nothing there.", usage=USAGE)
    read = any(name == "read_mail" and arguments.get("id") == mail for name, arguments, _ in steps)
    return mail if read else act("read_mail", {"id": mail}, f"Mail {mail} it is.")
