"""Runs the model's tool calls against a search index and writes the results as short text."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from corpus_index.backends.base import AsyncSearchIndex, Hit, QueryRejected, SearchIndex, SearchResult
from corpus_index.document import Document
from corpus_index.query import MAX_LIMIT, Query, QueryError, parse_query
from corpus_index.retries import RetrySettings, retried, retried_async
from corpus_index.scope import MailScope
from environments.protocol import SUBMIT, ToolCall
from environments.tool_schemas import READ_MAIL, SEARCH_KINDS, TOOLS, Describe
from environments.untrusted import fold_line, neutralise

ToolName = Literal["search_keyword", "search_bool", "read_mail"]
HitField = Literal["date", "sender", "subject", "snippet"]
MailField = Literal["date", "sender", "recipients", "subject", "body"]

SHOWN_RECIPIENTS = 5
_HEADER_ORDER: tuple[HitField, ...] = ("date", "sender", "subject")


class ToolSettings(RetrySettings):
    """What the model sees of the corpus, and how calls are made. Sizes are characters; ``hit_fields`` and
    ``mail_fields`` are sets: the order on screen is fixed. ``describe`` is how much the prompt says about the tools."""

    enabled: tuple[ToolName, ...] = ("search_keyword", "search_bool", "read_mail")
    describe: Describe = "full"
    max_hits: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = 10
    complete_first: bool = True  # keyword search: mails with every word of every keyword before the others
    hit_fields: tuple[HitField, ...] = ("date", "sender", "subject", "snippet")
    field_chars: Annotated[int, Field(ge=10)] = 120  # a longer sender or subject is cut with "..." in a hit line
    snippet_chars: Annotated[int, Field(ge=20)] = 160
    mail_fields: tuple[MailField, ...] = ("date", "sender", "recipients", "subject", "body")
    mail_chars: Annotated[int, Field(ge=100)] = 4000
    header_style: Literal["full", "line"] = "full"  # "line": one line above the body, for tiny models
    max_concurrent_calls: Annotated[int, Field(ge=1)] = 32  # to an index that is asked over a network


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """``text`` is what the model reads. ``error`` is the same fault without its prefix, empty when the call worked."""

    text: str
    error: str = ""
    shown_ids: tuple[str, ...] = ()
    opened_id: str = ""


@dataclass(frozen=True, slots=True)
class SearchRequest:
    query: Query
    snippet_chars: int


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """``offset``: the first character of the body to show."""

    mail_id: str
    offset: int


Request: TypeAlias = SearchRequest | ReadRequest
Answer: TypeAlias = SearchResult | Document | None


class CallError(ValueError):
    """The model's fault; its message tells what to do."""


_MODEL_ERRORS = (CallError, QueryError, QueryRejected)


class ToolBox:
    """The tools over one index. ``special_tokens`` are the tokenizer's, made harmless in every output.

    ``run`` asks the index, ``arun`` its asynchronous side; what is asked and what the model reads are the same.
    """

    def __init__(self, index: SearchIndex, settings: ToolSettings, *, special_tokens: Sequence[str] = ()) -> None:
        self.index = index
        self.settings = settings
        self.special_tokens = tuple(special_tokens)
        self._remote = index.asynchronous()
        self._views: dict[MailScope, SearchIndex] = {}
        self._remote_views: dict[MailScope, AsyncSearchIndex] = {}

    @property
    def asynchronous(self) -> bool:
        """Whether ``arun`` leaves its loop free while the index works."""
        return self._remote is not None

    def run(self, call: ToolCall, scope: MailScope | None = None) -> ToolOutcome:
        """Run one call, on the mails of ``scope`` alone. The model's errors come back as text: ``error: ...``.

        Raises IndexUnavailable when the engine stays away after the retries: an environment fault.
        """
        try:
            request = plan_call(call, self.settings)
            index = self.index if scope is None else self._view(scope)
            answer = retried(lambda: _ask(index, request), self.settings)
            return self._shown(render_answer(request, answer, self.settings))
        except _MODEL_ERRORS as error:
            return self._refused(error)

    async def arun(self, call: ToolCall, scope: MailScope | None = None) -> ToolOutcome:
        """``run`` without blocking the loop; on an index without an asynchronous side, ``run`` itself."""
        if self._remote is None:
            return self.run(call, scope)
        try:
            request = plan_call(call, self.settings)
            index = self._remote if scope is None else self._remote_view(self._remote, scope)
            answer = await retried_async(lambda: _ask_async(index, request), self.settings)
            return self._shown(render_answer(request, answer, self.settings))
        except _MODEL_ERRORS as error:
            return self._refused(error)

    async def aclose(self) -> None:
        """Close the connections of ``arun``, on the loop that used them. The index itself stays open."""
        if self._remote is not None:
            await self._remote.close()

    def _view(self, scope: MailScope) -> SearchIndex:
        if scope not in self._views:
            self._views[scope] = self.index.within(scope)
        return self._views[scope]

    def _remote_view(self, remote: AsyncSearchIndex, scope: MailScope) -> AsyncSearchIndex:
        if scope not in self._remote_views:
            self._remote_views[scope] = remote.within(scope)
        return self._remote_views[scope]

    def _shown(self, outcome: ToolOutcome) -> ToolOutcome:
        return replace(outcome, text=neutralise(outcome.text, self.special_tokens))

    def _refused(self, error: ValueError) -> ToolOutcome:
        message = neutralise(fold_line(str(error)), self.special_tokens)
        return ToolOutcome(f"error: {message}", error=message)


def plan_call(call: ToolCall, settings: ToolSettings) -> Request:
    """What to ask the index for. Raises CallError or QueryError where the call means nothing."""
    names = settings.enabled
    if call.name not in names:
        known = ", ".join((*names, SUBMIT))
        raise CallError(f"no tool named {_short(call.name)}{_nearest(call.name, (*names, SUBMIT))}. Use {known}")
    tool = TOOLS[call.name]
    for name in call.arguments:
        if name not in tool.properties:
            known = ", ".join(tool.properties)
            hint = _nearest(name, tuple(tool.properties))
            raise CallError(f"{call.name} has no argument {_short(name)}{hint}. It takes {known}")
    for name in tool.required:
        if name not in call.arguments:
            raise CallError(f"{call.name} needs the argument '{name}'")
    if call.name == READ_MAIL:
        return _plan_read(call.arguments)
    kind = SEARCH_KINDS[call.name]
    ours = {"limit": settings.max_hits}
    if kind == "keyword":
        ours["complete_first"] = settings.complete_first
    chars = settings.snippet_chars if "snippet" in settings.hit_fields else 0
    return SearchRequest(parse_query(kind, {**call.arguments, **ours}), chars)


def render_answer(request: Request, answer: Answer, settings: ToolSettings) -> ToolOutcome:
    """The index's answer as text. Raises CallError for an id or an offset that is not there."""
    match request, answer:
        case SearchRequest(), SearchResult():
            return ToolOutcome(render_hits(answer, settings), shown_ids=tuple(hit.document.id for hit in answer.hits))
        case ReadRequest(), None:
            raise CallError(f"no mail with id {_short(request.mail_id)}. Use an id that a search showed")
        case ReadRequest(), Document():
            offset, length = request.offset, len(answer.body)
            if offset and offset >= length:
                raise CallError(f"offset {offset} is past the end of mail {answer.id} ({length} characters)")
            return ToolOutcome(render_mail(answer, settings, offset), shown_ids=(answer.id,), opened_id=answer.id)
        case _:
            raise TypeError(f"a {type(answer).__name__} is no answer to {request}")


def _plan_read(arguments: dict[str, Any]) -> ReadRequest:
    mail_id, offset = arguments["id"], arguments.get("offset", 0)
    if not isinstance(mail_id, str):
        raise CallError(f"'id' must be a string such as \"0417\", not {type(mail_id).__name__}")
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise CallError(f"'offset' must be a whole number from 0, not {_short(offset)}")
    return ReadRequest(mail_id, offset)


def _ask(index: SearchIndex, request: Request) -> Answer:
    if isinstance(request, SearchRequest):
        return index.search(request.query, snippet_chars=request.snippet_chars)
    return index.read(request.mail_id)


async def _ask_async(index: AsyncSearchIndex, request: Request) -> Answer:
    if isinstance(request, SearchRequest):
        return await index.search(request.query, snippet_chars=request.snippet_chars)
    return await index.read(request.mail_id)


def render_hits(result: SearchResult, settings: ToolSettings) -> str:
    """``2 of 17 hits`` (``2 hits`` when all are shown), then one line a hit: id, date, sender, subject, snippet."""
    shown = len(result.hits)
    if not shown:
        return "no hits\nTry other or fewer words, or drop a filter." if settings.describe == "full" else "no hits"
    noun = "hit" if result.total == 1 else "hits"
    head = f"{shown} {noun}" if shown >= result.total else f"{shown} of {result.total} {noun}"
    fields: tuple[HitField, ...] = tuple(name for name in _HEADER_ORDER if name in settings.hit_fields)
    snippets, chars = "snippet" in settings.hit_fields, settings.field_chars
    return "\n".join((head, *(_hit_line(hit, fields, chars, snippets) for hit in result.hits)))


def render_mail(document: Document, settings: ToolSettings, offset: int = 0) -> str:
    """Header, then up to ``mail_chars`` of the body from ``offset`` (both in characters)."""
    fields = settings.mail_fields
    if settings.header_style == "line":
        header = _brief(document, tuple(name for name in _HEADER_ORDER if name in fields), settings.field_chars)
    else:
        header = "\n".join(_full_header(document, settings))
    if "body" not in fields:
        return header
    end = offset + settings.mail_chars
    body = document.body[offset:end]
    more = len(document.body) - end
    if more > 0:
        body += f"\n[cut: {more} more characters; {READ_MAIL} with offset {end}]"
    return f"{header}\n{body}" if settings.header_style == "line" else f"{header}\n\n{body}"


def _hit_line(hit: Hit, fields: tuple[HitField, ...], chars: int, snippet: bool) -> str:
    line = _brief(hit.document, fields, chars)
    return f"{line} | {_cell(hit.snippet) or '(empty)'}" if snippet else line


def _brief(document: Document, fields: tuple[HitField, ...], chars: int) -> str:
    """``id | date | sender | subject``, of these what ``fields`` names."""
    date = document.date.isoformat()[:10] if document.date else "no date"
    sender = document.sender_name or document.sender
    return document.id + _brief_fields(date, sender, document.subject, fields, chars)


def _cell(text: str) -> str:
    # "|" parts the cells, so a subject must not bring its own.
    return fold_line(text).replace("|", "/")


@lru_cache(maxsize=16_384)  # episodes meet the same mails again and again
def _brief_fields(date: str, sender: str, subject: str, fields: tuple[HitField, ...], chars: int) -> str:
    cells: dict[HitField, str] = {
        "date": date,
        "sender": _capped(_cell(sender), chars) or "unknown",
        "subject": _capped(_cell(subject), chars) or "(no subject)",
    }
    return "".join(f" | {cells[name]}" for name in fields)


def _full_header(document: Document, settings: ToolSettings) -> list[str]:
    fields = settings.mail_fields
    lines = [f"id: {document.id}"]
    if "date" in fields:
        lines.append(f"date: {document.date.strftime('%Y-%m-%d %H:%M') if document.date else 'no date'}")
    if "sender" in fields:
        lines.append(f"from: {_person(document.sender_name, document.sender)}")
    if "recipients" in fields:
        lines.append(f"to: {_recipients(document)}")
    if "subject" in fields:
        lines.append(f"subject: {fold_line(document.subject) or '(no subject)'}")
    return lines


def _recipients(document: Document) -> str:
    shown = document.recipients[:SHOWN_RECIPIENTS]
    names = (*document.recipient_names, *[""] * len(shown))
    text = ", ".join(_person(names[i], address) for i, address in enumerate(shown))
    more = len(document.recipients) - len(shown)
    return f"{text} and {more} more" if more > 0 else text or "nobody"


def _person(name: str, address: str) -> str:
    name, address = fold_line(name), fold_line(address)
    return f"{name} <{address}>" if name and address else name or address or "unknown"


def _capped(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 3].rstrip() + "..."


def _short(value: object) -> str:
    """A value the model wrote, quoted and kept short."""
    return repr(_capped(str(value), 60))


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
