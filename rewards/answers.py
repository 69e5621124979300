"""Does an answer say the same as the key? A rule matcher: fast, deterministic, and deaf to what the text asks for.

Both texts are read into typed values (money, percent, dates, times, weekdays, phones, addresses, room-like codes,
numbers with units) and the words around them. The game this file guards: an answer is paid for *one* claim. It wins
only if every value of the key is there and nothing else could have been meant; listing candidates is wrong even when
the right one is among them. Typed keys always get RIGHT or WRONG; UNSURE exists only for free text in the grey band.

Text is untrusted: lengths are capped before any pattern runs, and every pattern has bounded repeats.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field

from corpus_index.folding import WORD, fold, words
from rewards.values import (
    FLAGS,
    GENERIC,
    STOP,
    UNITS,
    WHEN,
    Date,
    Email,
    Extension,
    Money,
    Number,
    Percent,
    Phone,
    Time,
    Value,
    Weekday,
    scan,
    vocabulary,
)

MAX_ANSWER_CHARS = 2000
"""A longer answer or key is WRONG unread: nothing that long is one claim."""
_MAX_MAIL_CHARS = 20_000


class Verdict(StrEnum):
    RIGHT = "right"
    WRONG = "wrong"
    UNSURE = "unsure"


class MatchSettings(BaseModel):
    """Every knob of ``match``. Hashable, so that parsing can be cached under it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    day_first: bool = False
    """Read 3/12/2001 as 3 December. Off: US order, 12 March."""
    lone_name: bool = False
    """A first or last name alone equals the full name."""
    text_right: float = Field(default=0.75, ge=0, le=1)
    """Token F1 from which a free-text answer to a long key is RIGHT."""
    text_unsure: float = Field(default=0.4, ge=0, le=1)
    """Token F1 below which free text is WRONG; between the two it is UNSURE."""
    short_key_words: int = Field(default=3, ge=1)
    """Keys with at most this many content words must be met exactly; F1 means little on so few words."""
    extra_words: int = Field(default=1, ge=0)
    """Unknown lower-case words allowed beside a typed value. From 2 on, a lower-cased name beside it would pass."""


DEFAULT = MatchSettings()


# --- reading a text ----------------------------------------------------------------------------------------------

_NEGATIONS = frozenset(vocabulary(
    "not no never none nor neither without isn't wasn't aren't don't doesn't didn't won't can't"
))  # fmt: skip
_HEDGES = frozenset(("or", "either", "alternatively", "otherwise", "versus", "vs"))
_TIES = frozenset(("from", "of", "at", "in", "with"))  # "Steve Ehrenreich from Arthur Andersen" names one person
_TITLES = frozenset(vocabulary("mr mrs ms miss dr prof professor sir jr sr ii iii"))
_POLARITY = re.compile(r"(yes|yeah|yep|no|nope|true|false)\s{0,3}(?:$|[.,;:!-]\s{0,3}(?!\d))", FLAGS)
_LEAD_IN = re.compile(r"^(?:the\s)?(?:final\s)?answer(?:\sis\s?:?|:)\s?(?=\S)", FLAGS)
_YES = frozenset(("yes", "yeah", "yep", "true"))
_EDGES = " \t\n\"'`.,;:!?()[]{}<>*_"
_LETTER_DIGIT_GAP = re.compile(r"(?<=[a-z])[\s-]{1,3}(?=\d)|(?<=\d)[\s-]{1,3}(?=[a-z])")
_ITEM_GAP = re.compile(r"[,;\n&+|]|\band\b", FLAGS)

_LISTING = re.compile(r"[;&+]|\band\b", FLAGS)


def _bare(text: str) -> str:
    """Casefolded, without edge punctuation, and with "EB-3267" and "EB 3267" both as "eb3267"."""
    return _LETTER_DIGIT_GAP.sub("", text.casefold().strip(_EDGES))


@dataclass(frozen=True, slots=True)
class _Parsed:
    folded: str
    bare: str
    values: tuple[Value, ...]
    content: tuple[str, ...]
    """Words outside the values that carry meaning, in order."""
    proper: frozenset[str]
    """Those of ``content`` that are written with a capital."""
    every: frozenset[str]
    name: tuple[str, ...]
    items: tuple[frozenset[str], ...]
    listed: bool
    """``items`` are a list of short things, not the clauses of a sentence."""
    slashed: bool


@lru_cache(maxsize=16384)
def _parse(text: str, day_first: bool) -> _Parsed:
    folded = _LEAD_IN.sub("", fold(text)[: 2 * MAX_ANSWER_CHARS])
    values, rest = scan(folded, day_first)
    content: list[str] = []
    proper: set[str] = set()
    for token in WORD.findall(rest):
        word = token.casefold().removesuffix("'s")
        capital = token[0].isupper()
        if word in STOP and not (capital and word in ("will", "may") and content == []):
            continue
        content.append(word)
        if capital:
            proper.add(word)
    items = tuple(
        frozenset(item) for part in _ITEM_GAP.split(rest) if (item := [w for w in words(part) if w not in STOP])
    )
    return _Parsed(
        folded=folded,
        bare=_bare(folded),
        values=values,
        content=tuple(content),
        proper=frozenset(proper),
        every=frozenset(words(folded)),
        name=_name(rest, tuple(content)),
        items=items,
        listed=len(items) > 1 and max(map(len, items)) <= 3 and (len(items) > 2 or bool(_LISTING.search(rest))),
        slashed="/" in rest,
    )


def _name(rest: str, content: Sequence[str]) -> tuple[str, ...]:
    """First to last name in order, or () where the words cannot be one person's name."""
    tokens = [w for w in content if w not in _TITLES]
    if not 1 <= len(tokens) <= 4 or not all(w.replace("'", "").isalpha() for w in tokens):
        return ()
    before, comma, after = rest.partition(",")
    if comma and "," not in after:
        last = [w for w in words(before) if w in tokens]
        first = [w for w in words(after) if w in tokens]
        if last and first:  # "Allen, Phillip K."
            tokens = [*first, *last]
    return tuple(tokens)


def _same_name(one: Sequence[str], other: Sequence[str]) -> bool:
    """Same last name, first names equal or an initial of each other, middle names equal, initials or left out."""
    if min(len(one), len(other)) < 2 or one[-1] != other[-1] or len(one[-1]) < 2:
        return False

    def fits(a: str, b: str) -> bool:
        return a == b or (min(len(a), len(b)) == 1 and a[0] == b[0])

    if not fits(one[0], other[0]):
        return False
    middle, others = one[1:-1], other[1:-1]
    if middle and others:
        return len(middle) == len(others) and all(map(fits, middle, others))
    return all(len(part) == 1 for part in (*middle, *others))


# --- comparing ---------------------------------------------------------------------------------------------------


def _same(a: Value, k: Value) -> bool:
    """Does the answer's value ``a`` say what the key's value ``k`` says? What the key leaves open may be anything."""
    match a, k:
        case Number(), Number():
            if a.unit == k.unit or not a.unit or not k.unit:
                return a.amount == k.amount
            (kind, factor), (other, key_factor) = UNITS[a.unit], UNITS[k.unit]
            return kind == other and a.amount * factor == k.amount * key_factor
        case Date(), Date():
            year = not a.year or not k.year or a.year == k.year
            return year and a.month == k.month and (not k.day or a.day == k.day)
        case Time(), Time():
            if a.zone and k.zone and a.zone != k.zone:
                return False
            turn = 720 if a.loose or k.loose else 1440  # "2:00" may be either half of the day
            return (a.start - k.start) % turn == 0 and (k.end < 0 or (a.end >= 0 and (a.end - k.end) % turn == 0))
        case Phone(), Phone():
            one, two = a.digits.removeprefix("1"), k.digits.removeprefix("1")
            return one == two or a.digits == k.digits or (min(len(one), len(two)) == 7 and one[-7:] == two[-7:])
        case (Extension(), Phone()) | (Phone(), Extension()):
            return len(a.digits) >= 4 and len(k.digits) >= 4 and (
                a.digits.endswith(k.digits) or k.digits.endswith(a.digits)
            )  # fmt: skip
        case _:
            return a == k


def _same_bare(a: Value, k: Value) -> bool:
    """A single value on both sides where one names its kind and the other is a plain number."""
    match a, k:
        case (Number(unit=""), Money() | Percent()) | (Money() | Percent(), Number(unit="")):
            return a.amount == k.amount
        case Number(unit=""), Extension():
            return str(a.amount.to_integral_value()) == k.digits.lstrip("0") or f"{a.amount:f}" == k.digits
        case (Date(), Number(unit="")):
            return a.year > 0 and k.amount == a.year
        case (Number(unit=""), Phone()) | (Phone(), Number(unit="")):
            digits = a.digits if isinstance(a, Phone) else k.digits if isinstance(k, Phone) else ""
            number = a.amount if isinstance(a, Number) else k.amount if isinstance(k, Number) else Decimal(-1)
            return f"{number:f}" == digits
        case _:
            return False


def _pair(answer: _Parsed, key: _Parsed) -> tuple[bool, list[Value]]:
    """(every key value is met, answer values left over). Each answer value serves one key value."""
    left = list(answer.values)
    dated = any(isinstance(k, Date) and k.day for k in key.values)
    for k in key.values:
        found = next((a for a in left if _same(a, k)), None)
        if found is None and len(key.values) == len(answer.values) == 1 and _same_bare(left[0], k):
            found = left[0]
        if found is not None:
            left.remove(found)
        elif not (dated and isinstance(k, Weekday)):  # the weekday of a full date says nothing new
            return False, left
    return True, left


def _values_verdict(answer: _Parsed, key: _Parsed, asked: _Parsed) -> Verdict:
    """The typed part: RIGHT only if all values are met and no other candidate is named."""
    met, left = _pair(answer, key)
    if not met:
        return Verdict.WRONG
    kinds = tuple({type(k) for k in key.values})
    for a in left:
        if any(_same(a, k) for k in key.values):
            continue  # the same thing twice: "2 pm (14:00)"
        if isinstance(a, kinds):
            return Verdict.WRONG
        if isinstance(a, WHEN) and any(isinstance(k, WHEN) for k in key.values):
            continue
        if not any(_same(a, q) for q in asked.values):
            return Verdict.WRONG  # values of every kind at once would pay whatever the question was
    return Verdict.RIGHT


def _extras(answer: _Parsed, key: _Parsed, asked: _Parsed) -> tuple[set[str], set[str]]:
    """(all, capitalised) words of the answer that neither the key nor the question accounts for."""
    restated = set(asked.content)
    if restated & set(key.content):  # the question names candidates: its names are no longer innocent
        restated -= asked.proper
    extra = set(answer.content) - set(key.content) - GENERIC - restated
    return extra, extra & answer.proper


def _loose_ends(answer: _Parsed, key: _Parsed) -> bool:
    """A hedge ("or", a slash between candidates) or a negation on one side only."""
    hedged = bool(_HEDGES & answer.every - key.every) or (answer.slashed and not key.slashed)
    return hedged or bool(_NEGATIONS & answer.every) != bool(_NEGATIONS & key.every)


def _typed(answer: _Parsed, key: _Parsed, asked: _Parsed, settings: MatchSettings) -> Verdict:
    if _loose_ends(answer, key) or _values_verdict(answer, key, asked) is Verdict.WRONG:
        return Verdict.WRONG
    extra, proper = _extras(answer, key, asked)
    if any(isinstance(k, Email) for k in key.values):
        proper -= {part for k in key.values if isinstance(k, Email) for part in words(k.address.replace(".", " "))}
        extra &= proper | (extra - answer.proper)
    return Verdict.WRONG if proper or len(extra) > settings.extra_words else Verdict.RIGHT


def _text(answer: _Parsed, key: _Parsed, asked: _Parsed, settings: MatchSettings) -> Verdict:
    wanted = set(key.content)
    if key.values:  # "room Birch 204" is met by "Birch 204"
        wanted -= GENERIC
    extra, proper = _extras(answer, key, asked)
    said = (set(answer.content) & wanted) | extra
    hits = len(said & wanted)
    f1 = 2 * hits / (len(said) + len(wanted))
    short = len(wanted) <= settings.short_key_words
    best = Verdict.RIGHT
    if _loose_ends(answer, key):
        if short:
            return Verdict.WRONG
        best = Verdict.UNSURE
    if key.listed:
        given = {item & said for item in answer.items} - {frozenset()}
        if given == set(key.items):
            return best
        if said != wanted or len(given) > 1:  # one item short, one too many, or "Sally Arnold and John Beck"
            return Verdict.WRONG
        return Verdict.UNSURE
    if said == wanted:
        return best
    if short:
        if hits < len(wanted):  # a part of a name or term, perhaps with something else
            part = f1 >= 0.6 and not proper and (hits > 1 or not key.proper)
            return Verdict.UNSURE if part else Verdict.WRONG
        candidates = len(proper) > 1 and not _TIES & answer.every
        return Verdict.UNSURE if len(extra) <= settings.short_key_words and not candidates else Verdict.WRONG
    if f1 < settings.text_unsure:
        return Verdict.WRONG
    crucial = key.proper <= said and not proper  # one swapped name changes everything and costs little F1
    return best if f1 >= settings.text_right and crucial else Verdict.UNSURE


def _names(answer: _Parsed, key: _Parsed, settings: MatchSettings) -> bool:
    """Is the key one person, and the answer that person alone (or that person's mail address)?"""
    name, said = key.name, answer.name
    if len(name) < 2 or len(key.proper) < len(name) - 1 or len(key.items) > 2:
        return False
    mailed = [words(a.address.partition("@")[0]) for a in answer.values if isinstance(a, Email)]
    if any(not _same_name(part, name) for part in mailed) or len(mailed) < len(answer.values):
        return False
    if not said:
        return bool(mailed) and not answer.content
    if settings.lone_name and len(said) == 1 and said[0] in (name[0], name[-1]):
        return True
    return _same_name(said, name)


def match(answer: str, key: str, *, question: str = "", settings: MatchSettings = DEFAULT) -> Verdict:
    """Compare ``answer`` with ``key``. Symmetric in nothing: the key decides which kind of value is asked for.

    ``question`` only helps to tell words that restate it from further candidates. Never raises on any text.
    """
    if len(answer) > MAX_ANSWER_CHARS or len(key) > MAX_ANSWER_CHARS:
        return Verdict.WRONG
    a, k = _parse(answer, settings.day_first), _parse(key, settings.day_first)
    if not a.bare or not k.bare:
        return Verdict.WRONG
    if a.bare == k.bare:
        return Verdict.RIGHT
    asked = _parse(question[:MAX_ANSWER_CHARS], settings.day_first)
    if polarity := _POLARITY.match(k.bare):
        said = _POLARITY.match(a.bare)
        if not said or (said[1] in _YES) != (polarity[1] in _YES):
            return Verdict.WRONG
        both = bool(a.every & _YES) and bool(a.every & {"no", "nope", "false"})
        named = {type(v) for v in a.values}
        denied = any(type(v) in named and not any(_same(w, v) for w in a.values) for v in k.values)
        return Verdict.WRONG if both or denied or _HEDGES & a.every - k.every else Verdict.RIGHT
    if k.values:
        rest = set(k.content) - GENERIC
        if not rest:
            return _typed(a, k, asked, settings)
        if _values_verdict(a, k, asked) is Verdict.WRONG:
            return Verdict.WRONG
        counted = len(k.values) == 1 and isinstance(k.values[0], Number) and len(rest) == 1 and not k.proper
        if counted and not set(a.content) - GENERIC - rest and not _loose_ends(a, k):
            return Verdict.RIGHT  # "12" for "12 desks"
        return _text(a, k, asked, settings)
    if not k.content:  # only small words: nothing but the same words will do
        return Verdict.RIGHT if a.every == k.every else Verdict.WRONG
    if not _loose_ends(a, k) and _names(a, k, settings):
        return Verdict.RIGHT
    verdict = _text(a, k, asked, settings)
    stray = any(not any(_same(v, q) for q in asked.values) for v in a.values)
    return Verdict.UNSURE if stray and verdict is Verdict.RIGHT else verdict


@lru_cache(maxsize=1024)
def _spaced(text: str) -> str:
    return f" {' '.join(words(text))} "


@lru_cache(maxsize=1024)
def _scan(text: str, day_first: bool) -> tuple[Value, ...]:
    return scan(fold(text), day_first)[0]


def mentions(text: str, answer: str, *, settings: MatchSettings = DEFAULT) -> bool:
    """Does ``text`` (a mail or a question, of any length) state ``answer``?

    True if the answer's words stand in it in a row, or if the answer is made of values alone and the first 20,000
    characters hold each of them in any notation ("2001-03-12" for "March 12").
    """
    said = _spaced(answer[:MAX_ANSWER_CHARS])
    if not said.strip():
        return False
    if said in _spaced(text):
        return True
    parsed = _parse(answer[:MAX_ANSWER_CHARS], settings.day_first)
    if not parsed.values or set(parsed.content) - GENERIC:
        return False
    held = _scan(text[:_MAX_MAIL_CHARS], settings.day_first)
    return all(any(_same(a, k) for a in held) for k in parsed.values)
