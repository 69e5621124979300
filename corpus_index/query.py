"""The one validated query model that every backend executes.

Nothing a model writes reaches a search engine raw: ``parse_query`` turns tool arguments into these types, capped, and
the backend compiles them. What ``parse_query`` forgives, because language models write it: a bare string for
``keywords``, a single clause where a list of clauses is expected, and ``null`` for something left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Annotated, Literal, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

TEXT_FIELDS = ("subject", "body")
NAME_FIELDS = ("sender", "recipient")
EXACT_FIELDS = ("mailbox", "folder", "thread", "id")
SEARCHABLE_FIELDS = ("any", *TEXT_FIELDS, *NAME_FIELDS, *EXACT_FIELDS)
PHRASE_FIELDS = ("any", *TEXT_FIELDS, *NAME_FIELDS)
OCCURS = ("must", "should", "must_not", "filter")

MAX_CLAUSES = 32
MAX_KEYWORDS = 16
MAX_TEXT = 200
MAX_LIMIT = 50


class QueryError(ValueError):
    """A query that is not valid: one line that names the field, the value received and what is expected."""


def _only_iso(value: object) -> object:
    """Refuse numbers (and digits only): pydantic would read them as seconds since 1970, which nobody means here."""
    if isinstance(value, datetime) or (isinstance(value, str) and not value.strip().isdigit()):
        return value
    raise ValueError("not an ISO date")


def _in_utc(value: datetime) -> datetime:
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:  # year 1 or 9999 moved out of the calendar by its offset
        return value.replace(tzinfo=UTC)


Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_TEXT)]
Moment = Annotated[datetime, BeforeValidator(_only_iso), AfterValidator(_in_utc)]
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]


class QueryModel(BaseModel):
    """Frozen; an unknown field is an error that names it. Dates without an offset are UTC."""

    model_config = ConfigDict(extra="forbid", frozen=True)


M = TypeVar("M", bound=QueryModel)


def _check_span(after: datetime | None, before: datetime | None) -> None:
    if after is not None and before is not None and after >= before:
        raise ValueError(f"'after' ({after:%Y-%m-%d %H:%M}) must be earlier than 'before' ({before:%Y-%m-%d %H:%M})")


class Scope(QueryModel):
    """Filters that apply to a whole query. Dates are half-open: ``after <= date < before``.

    A mail without a readable date is outside every date range.
    """

    sender: Text | None = Field(None, description="Part of the sender's name or address; all its words must occur")
    recipient: Text | None = Field(None, description="Part of a recipient's name or address; all its words must occur")
    mailbox: Text | None = Field(None, description="Exact mailbox")
    folder: Text | None = Field(None, description="Exact folder")
    after: Moment | None = Field(None, description="ISO date; mails on or after it")
    before: Moment | None = Field(None, description="ISO date; mails before it")

    @model_validator(mode="after")
    def _span(self) -> Scope:
        _check_span(self.after, self.before)
        return self


class KeywordQuery(Scope):
    """BM25 over subject and body; a keyword with several words is matched word by word, all keywords are optional."""

    keywords: Annotated[tuple[Text, ...], Field(min_length=1, max_length=MAX_KEYWORDS)]
    complete_first: bool = Field(False, description="Mails that hold every word of every keyword come before others")
    limit: Limit = 10


class MatchClause(QueryModel):
    """``any`` (subject or body), ``subject``, ``body``: at least one word of ``match`` occurs. ``sender``,
    ``recipient``: all its words occur, as in ``Scope``. The other fields: equality.
    """

    match: Text
    field: Literal["any", "subject", "body", "sender", "recipient", "mailbox", "folder", "thread", "id"] = "any"


class PhraseClause(QueryModel):
    """The words of ``phrase`` occur next to each other, in order."""

    phrase: Text
    field: Literal["any", "subject", "body", "sender", "recipient"] = "any"


class DateClause(QueryModel):
    """``after <= date < before``; at least one bound."""

    after: Moment | None = None
    before: Moment | None = None

    @model_validator(mode="after")
    def _one_bound(self) -> DateClause:
        if self.after is None and self.before is None:
            raise ValueError("a date clause needs 'after' or 'before' (ISO date, e.g. 2001-05-14)")
        _check_span(self.after, self.before)
        return self


Clause = MatchClause | PhraseClause | DateClause
Clauses = Annotated[tuple[Clause, ...], Field(max_length=MAX_CLAUSES)]


class BoolQuery(QueryModel):
    """must and filter: all; should: adds score, and at least one where must and filter are empty; must_not: none."""

    must: Clauses = ()
    should: Clauses = ()
    must_not: Clauses = ()
    filter: Clauses = ()
    limit: Limit = 10

    @model_validator(mode="after")
    def _within_caps(self) -> BoolQuery:
        total = len(self.must) + len(self.should) + len(self.must_not) + len(self.filter)
        if total > MAX_CLAUSES:
            raise ValueError(_too_many(total))
        if not (self.must or self.should or self.filter):
            raise ValueError("a bool query needs at least one must, should or filter clause")
        return self


Query = KeywordQuery | BoolQuery


def parse_query(kind: Literal["keyword", "bool"], arguments: Mapping[str, object]) -> Query:
    """Read the arguments of a search tool (decoded JSON). Raises QueryError with one line a model can act on."""
    given = _present(arguments, "arguments")
    if kind == "keyword":
        if isinstance(given.get("keywords"), str):
            given["keywords"] = [given["keywords"]]
        return _validated(KeywordQuery, given, "")
    lists = {occur: _as_list(occur, given[occur]) for occur in OCCURS if occur in given}
    total = sum(len(clauses) for clauses in lists.values())
    if total > MAX_CLAUSES:  # before anything is parsed: ten thousand clauses must cost nothing
        raise QueryError(_too_many(total))
    for occur, clauses in lists.items():
        given[occur] = tuple(_clause(clause, f"{occur}[{i}]") for i, clause in enumerate(clauses))
    return _validated(BoolQuery, given, "")


def _clause(given: object, path: str) -> Clause:
    """One clause; its keys say which kind it is."""
    if isinstance(given, str):
        raise QueryError(f'{path}: {_short(given)} is text, not a clause; write {{"match": "..."}}')
    clause = _present(given, path)
    kinds: list[type[Clause]] = []
    if "match" in clause:
        kinds.append(MatchClause)
    if "phrase" in clause:
        kinds.append(PhraseClause)
    if "after" in clause or "before" in clause:
        kinds.append(DateClause)
    if len(kinds) != 1:
        keys = ", ".join(_short(key) for key in list(clause)[:6]) or "nothing"
        raise QueryError(f"{path}: has {keys}; a clause has one of match, phrase, or a date range (after, before)")
    return _validated(kinds[0], clause, path)


def _present(given: object, path: str) -> dict[str, object]:
    """A JSON object without its nulls: null means left out."""
    if not isinstance(given, Mapping):
        raise QueryError(f"{path}: {_short(given)} is not an object")
    return {str(key): value for key, value in cast("Mapping[object, object]", given).items() if value is not None}


def _as_list(occur: str, given: object) -> Sequence[object]:
    if isinstance(given, Mapping):
        return [cast("object", given)]
    if isinstance(given, list | tuple):
        return cast("Sequence[object]", given)
    raise QueryError(f'{occur}: {_short(given)} is not a list of clauses such as [{{"match": "budget"}}]')


def _validated(model: type[M], given: dict[str, object], path: str) -> M:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise QueryError(_one_line(error.errors(include_url=False)[0], model, path)) from None


def _one_line(error: ErrorDetails, model: type[QueryModel], path: str) -> str:
    """The first pydantic error as ``path: value, what is wrong with it; what is expected``."""
    where = path
    for step in error["loc"]:
        where += f"[{step}]" if isinstance(step, int) else f".{step}" if where else str(step)
    value, context, kind = error["input"], error.get("ctx", {}), error["type"]
    fields = list(model.model_fields)
    if kind == "extra_forbidden":
        near = get_close_matches(str(error["loc"][-1]), fields, n=1)
        hint = f"did you mean {near[0]}?" if near else f"use {', '.join(fields)}"
        return f"{_short(where, 80, quoted=False)}: is not known; {hint}"
    if kind == "missing":
        return f"{where}: is missing"
    if kind == "literal_error":
        choices = PHRASE_FIELDS if model is PhraseClause else SEARCHABLE_FIELDS
        return f"{where}: {_short(value)} is not a field; use one of {', '.join(choices)}"
    if error["loc"] and str(error["loc"][-1]) in ("after", "before"):
        return f"{where}: {_short(value)} is not a date; write an ISO date such as 2001-05-14"
    if kind == "value_error":
        return f"{where}: {context['error']}" if where else str(context["error"])
    expected = {
        "string_too_short": "is empty; leave it out or write at least one word",
        "string_too_long": f"is {len(value) if isinstance(value, str) else 0} characters; at most {MAX_TEXT}",
        "string_type": "is not text",
        "string_unicode": "holds half a character (a lone surrogate)",
        "too_long": f"is too long; at most {MAX_KEYWORDS} keywords",
        "too_short": "is empty; write at least one keyword",
        "tuple_type": 'is not a list of keywords such as ["budget", "meeting"]',
        "greater_than_equal": f"is not between 1 and {MAX_LIMIT}",
        "less_than_equal": f"is not between 1 and {MAX_LIMIT}",
    }.get(kind)
    if expected is None:
        expected = f"is not a whole number from 1 to {MAX_LIMIT}" if where == "limit" else error["msg"]
    return f"{where}: {_short(value)} {expected}"


def _short(value: object, width: int = 60, *, quoted: bool = True) -> str:
    """A value on one line, cut to ``width`` characters; ``repr`` escapes line breaks and control characters."""
    text = repr(value[: width + 1] if isinstance(value, str | list | tuple) else value)
    text = text if quoted or not isinstance(value, str) else text[1:-1]
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _too_many(total: int) -> str:
    return f"{total} clauses in all; at most {MAX_CLAUSES}. Drop the least telling ones"
