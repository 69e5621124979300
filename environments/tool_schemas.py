"""The tools as the model is told about them: names, JSON schemas, and several wordings of each description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from environments.protocol import SUBMIT
from environments.task import Role

SearchKind = Literal["keyword", "bool"]
Describe = Literal["full", "brief", "none"]
SEARCH_KINDS: dict[str, SearchKind] = {"search_keyword": "keyword", "search_bool": "bool"}
READ_MAIL = "read_mail"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tool:
    """``wordings`` are descriptions with one meaning and different words; ``brief`` is the shortest one."""

    name: str
    wordings: tuple[str, ...]
    brief: str
    properties: dict[str, dict[str, Any]]
    required: tuple[str, ...]

    def schema(self, variant: int = 0, describe: Describe = "full") -> dict[str, Any]:
        """OpenAI function form. ``variant`` picks the wording and the order of the optional arguments; "brief" keeps
        one short wording and no argument descriptions."""
        full = describe == "full"
        names = list(self.properties)
        if full:
            optional = [name for name in names if name not in self.required]
            names = [*self.required, *_rotated(optional, variant // len(self.wordings))]
        properties = {
            name: {key: value for key, value in self.properties[name].items() if full or key != "description"}
            for name in names
        }
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.wordings[variant % len(self.wordings)] if full else self.brief,
                "parameters": {"type": "object", "properties": properties, "required": list(self.required)},
            },
        }


def _rotated(items: Sequence[T], by: int) -> list[T]:
    if not items:
        return []
    by %= len(items)
    return [*items[by:], *items[:by]]


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _texts(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _clauses(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object"}, "description": description}


SEARCH_KEYWORD = Tool(
    name="search_keyword",
    wordings=(
        "Search the mails by keywords, best match first. Every keyword is optional: more matches rank higher.",
        "Find mails that contain some of the given words in subject or body. Results come ranked, the best one on top. "
        "Sender, recipient, mailbox, folder and dates can narrow the search down.",
        "Keyword search over subjects and bodies, with optional filters.",
        "Give a few telling words (names, places, numbers) and get the mails that fit them best, one line each, with "
        "the id that read_mail needs.",
    ),
    brief="Search mails by keywords.",
    properties={
        "keywords": _texts("Words or names to look for"),
        "sender": _text("Part of the sender's name or address"),
        "recipient": _text("Part of a recipient's name or address"),
        "mailbox": _text("Exact mailbox name"),
        "folder": _text("Exact folder name"),
        "after": _text("Only mails on or after this date, YYYY-MM-DD"),
        "before": _text("Only mails before this date, YYYY-MM-DD"),
    },
    required=("keywords",),
)

SEARCH_BOOL = Tool(
    name="search_bool",
    wordings=(
        'Search with conditions. A clause is {"match": words, "field": F}, {"phrase": words, "field": F} or '
        '{"after": date, "before": date}; F is any, subject, body, sender, recipient, mailbox, folder or thread.',
        "Combine clauses: must and filter have to hold, must_not must not, should raises the rank. Write a clause as "
        '{"match": "...", "field": "any"}, {"phrase": "...", "field": "subject"} or {"after": "YYYY-MM-DD"}.',
        'Boolean search for exact needs, such as {"must": [{"phrase": "budget review"}], "must_not": [{"match": '
        '"draft", "field": "subject"}]}. Dates: {"after": "2024-01-01", "before": "2024-02-01"}.',
    ),
    brief="Search mails by must, should, must_not and filter clauses.",
    properties={
        "must": _clauses("All of these hold, and count for the rank"),
        "should": _clauses("These raise the rank"),
        "must_not": _clauses("None of these holds"),
        "filter": _clauses("All of these hold, without counting for the rank"),
    },
    required=(),
)

READ = Tool(
    name=READ_MAIL,
    wordings=(
        "Open one mail by its id and read it. A long mail is cut; read on with offset.",
        "Show the mail with this id: its header and its text. Searches show the ids. When the end says that the text "
        "was cut, call again with the offset it names.",
        "Read a mail in full, given the id from a search result.",
    ),
    brief="Read a mail by id.",
    properties={
        "id": _text("The mail's id, as a search showed it"),
        "offset": {"type": "integer", "minimum": 0, "description": "Character to start from, for a long mail"},
    },
    required=("id",),
)

_ANSWER = _text("The answer: short, only the fact asked for")
_EVIDENCE = _texts("Ids of the mails that the answer needs")

_SUBMIT_SOLVER = Tool(
    name=SUBMIT,
    wordings=(
        "Hand in the answer and its evidence. This ends the task.",
        "Finish: give the short answer to the question and the ids of the mails that prove it.",
        "Submit your final answer with the ids of the mails it rests on. Call it once, when you are sure.",
    ),
    brief="Submit the answer.",
    properties={"answer": _ANSWER, "evidence": _EVIDENCE},
    required=("answer", "evidence"),
)

_SUBMIT_PROPOSER = Tool(
    name=SUBMIT,
    wordings=(
        "Hand in the question, its answer and its evidence. This ends the task.",
        "Finish: give your question, the short answer to it and the ids of the mails that one must read to answer it.",
        "Submit your final question with its answer and the ids of the mails it rests on. Call it once, when you are "
        "sure that the mails prove it.",
    ),
    brief="Submit the question.",
    properties={
        "question": _text("The question: one sentence that can be understood on its own"),
        "answer": _ANSWER,
        "evidence": _EVIDENCE,
    },
    required=("question", "answer", "evidence"),
)

TOOLS: dict[str, Tool] = {tool.name: tool for tool in (SEARCH_KEYWORD, SEARCH_BOOL, READ)}


def submit_tool(role: Role) -> Tool:
    return _SUBMIT_PROPOSER if role is Role.PROPOSER else _SUBMIT_SOLVER


def schemas(
    enabled: Sequence[str], role: Role, *, variant: int = 0, describe: Describe = "full"
) -> list[dict[str, Any]]:
    """The schemas shown in a prompt: the enabled tools, in an order that ``variant`` turns, and ``submit`` last."""
    tools = [TOOLS[name] for name in enabled]
    if describe == "full":
        tools = _rotated(tools, variant)
    return [tool.schema(variant, describe) for tool in (*tools, submit_tool(role))]
