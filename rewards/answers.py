"""Does an answer say the same as the key? A rule matcher: fast, deterministic, and deaf to what the text asks for.

Both texts are read into typed values (money, percent, dates, times, weekdays, phones, addresses, room-like codes,
numbers with units) and the words around them. The game this file guards: an answer is paid for *one* claim. It wins
only if every value of the key is there and nothing else could have been meant; listing candidates is wrong even when
the right one is among them. Typed keys always get RIGHT or WRONG; UNSURE exists only for free text in the grey band.

Text is untrusted: lengths are capped before any pattern runs, and every pattern has bounded repeats.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field

from corpus_index.folding import fold, words
from rewards.answer_text import MAX_ANSWER_CHARS, Reading, content_words, read
from rewards.names import name_of, same_name
from rewards.rewording import FLAGS, one_notation
from rewards.scanning import scan
from rewards.values import WHEN, Date, Email, Number, Rate, Value, Weekday, same_bare_value, same_value
from rewards.vocabulary import GENERIC, HEDGES, NEGATIONS, TO_THE_JUDGE

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


_TIES = frozenset(("from", "of", "at", "in", "with"))  # "Steve Ehrenreich from Arthur Andersen" names one person
_POLARITY = re.compile(r"(yes|yeah|yep|no|nope|true|false)\s{0,3}(?:$|[.,;:!-]\s{0,3}(?!\d))", FLAGS)
_YES = frozenset(("yes", "yeah", "yep", "true"))
_ALL_BUT = re.compile(r"\b(?:one\sof|any\sof|except|excluding|(?:all|any|every)(?:one|body|thing)?\sbut)\b", FLAGS)
_BELONGS = re.compile(r"\s(?:from|of|at|in)(?:\s[A-Z][\w&-]{1,20}){1,3}")
_ENDINGS = frozenset(("s", "d", "ed", "ing", "es", "ned", "ted", "led"))
_ASKS_CITY = re.compile(r"\b(?:city|town)\b")
_ASKS_YES_NO = re.compile(r"(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|may|must)\b", FLAGS)


def _pair(answer: Reading, key: Reading) -> tuple[bool, list[Value]]:
    """(every key value is met, answer values left over). Each answer value serves one key value."""
    left = list(answer.values)
    dated = any(isinstance(k, Date) and k.day for k in key.values)
    for k in key.values:
        found = next((a for a in left if same_value(a, k)), None)
        if found is None and len(key.values) == len(answer.values) == 1 and same_bare_value(left[0], k):
            found = left[0]
        if found is not None:
            left.remove(found)
        elif isinstance(k, Rate) and not any(isinstance(a, Rate) for a in left):
            continue  # "$2.85" for "$2.85 per MMBtu"
        elif not (dated and isinstance(k, Weekday)):  # the weekday of a full date says nothing new
            return False, left
    return True, left


def _values_verdict(answer: Reading, key: Reading, asked: Reading) -> Verdict:
    """The typed part: RIGHT only if all values are met and no other candidate is named."""
    met, left = _pair(answer, key)
    if not met:
        return Verdict.WRONG
    kinds = tuple({type(k) for k in key.values})
    named = any(same_value(k, q) for k in key.values for q in asked.values)  # the question names candidates
    for a in left:
        if any(same_value(a, k) for k in key.values):
            continue  # the same thing twice: "2 pm (14:00)"
        restated = any(same_value(a, q) for q in asked.values) and not named
        if isinstance(a, kinds) and not restated:
            return Verdict.WRONG
        if isinstance(a, Rate):
            continue
        if isinstance(a, WHEN) and any(isinstance(k, WHEN) for k in key.values):
            continue
        if not restated:
            return Verdict.WRONG  # values of every kind at once would pay whatever the question was
    return Verdict.RIGHT


def _extras(answer: Reading, key: Reading, asked: Reading) -> tuple[set[str], set[str]]:
    """(all, capitalised) words of the answer that neither the key nor the question accounts for."""
    extra = set(answer.content) - set(key.content) - GENERIC - _restated(key, asked)
    return extra, extra & answer.proper


def _restated(key: Reading, asked: Reading) -> set[str]:
    """Words of the question that are no candidates in an answer."""
    restated = set(asked.content)
    if restated & set(key.content):  # the question names candidates: its names are no longer innocent
        restated -= asked.proper
    return restated


def _loose_ends(answer: Reading, key: Reading, asked: Reading) -> bool:
    """A hedge ("or", "one of", a slash between candidates) or a negation on one side only."""
    if HEDGES & answer.every - key.every or (_ALL_BUT.search(answer.rest) and not _ALL_BUT.search(key.rest)):
        return True
    if answer.slashed and not (key.slashed or key.listed):
        return True
    restated = asked.negated and not answer.bare.startswith(("not ", "no "))  # "Who was not invited?"
    return answer.negated != key.negated and not (answer.negated and restated)


def _typed(answer: Reading, key: Reading, asked: Reading, settings: MatchSettings) -> Verdict:
    if _loose_ends(answer, key, asked) or _values_verdict(answer, key, asked) is Verdict.WRONG:
        return Verdict.WRONG
    extra, proper = _extras(answer, key, asked)
    if any(isinstance(k, Email) for k in key.values):
        proper -= {part for k in key.values if isinstance(k, Email) for part in words(k.address.replace(".", " "))}
        extra &= proper | (extra - answer.proper)
    return Verdict.WRONG if proper or len(extra) > settings.extra_words else Verdict.RIGHT


def _text(answer: Reading, key: Reading, asked: Reading, settings: MatchSettings) -> Verdict:
    wanted = set(key.content)
    if _ASKS_CITY.search(asked.bare) and "," in key.rest and not key.values:  # "Calgary, Alberta" is met by "Calgary"
        wanted = set(content_words(key.rest.partition(",")[0])) | (wanted & set(answer.content))
    if key.values:  # "room Birch 204" is met by "Birch 204"
        wanted -= GENERIC
    restated = wanted & set(asked.content) - asked.proper
    if wanted - restated:  # the question says "hotel" already
        wanted -= restated
    extra, proper = _extras(answer, key, asked)
    said = (set(answer.content) & wanted) | extra
    hits = len(said & wanted)
    f1 = 2 * hits / (len(said) + len(wanted))
    short = len(wanted) <= settings.short_key_words
    best = Verdict.RIGHT
    if _loose_ends(answer, key, asked):
        if short or said - NEGATIONS == wanted - NEGATIONS:
            return Verdict.WRONG
        best = Verdict.UNSURE
    if key.listed:
        given = {item & said for item in answer.items} - {frozenset()}
        if given == set(key.items):
            return best
        if said != wanted or len(given) > 1:  # one item short, one too many, or "Sally Arnold and John Beck"
            return Verdict.WRONG
        return Verdict.UNSURE
    person = asked.bare.startswith("who") or not asked.bare
    if said == wanted:
        order = [w for w in answer.content if w in wanted]
        turned = not person and key.proper == frozenset(wanted) and order != [w for w in key.content if w in wanted]
        return Verdict.WRONG if turned else best  # "Crossing Falcon" is no project
    if short:
        if hits < len(wanted):  # a part of a name or term, perhaps with something else
            part = f1 >= 0.6 and not proper and hits > 1 and (person or not key.proper)
            return Verdict.UNSURE if part else Verdict.WRONG
        candidates = len(proper) > 1 and not _TIES & answer.every
        if asked.bare.startswith("who") and len(extra) > 1:  # a second person, written small
            return Verdict.WRONG
        return Verdict.UNSURE if len(extra) <= settings.short_key_words and not candidates else Verdict.WRONG
    if f1 < settings.text_unsure:
        return Verdict.WRONG
    crucial = key.proper <= said and not proper  # one swapped name changes everything and costs little F1
    return best if f1 >= settings.text_right and crucial else Verdict.UNSURE


def _names(answer: Reading, key: Reading, asked: Reading, settings: MatchSettings) -> bool:
    """Is the key one person, and the answer that person alone (or that person's mail address)?"""
    name = key.name
    if len(name) < 2 or len(key.proper) < len(name) - 1 or len(key.items) > 2:
        return False
    mailed = [words(a.address.partition("@")[0]) for a in answer.values if isinstance(a, Email)]
    if any(not same_name(part, name) for part in mailed) or len(mailed) < len(answer.values):
        return False
    if not answer.content:
        return bool(mailed)
    # "Rob Tanaka approved the credit line": what the question says already is no part of the name.
    restated = _restated(key, asked) - set(key.content)
    for text in (answer.rest, _BELONGS.sub("", answer.rest, count=1) if asked.bare.startswith("who") else ""):
        said = name_of(text, [w for w in content_words(text) if w not in restated])
        if settings.lone_name and len(said) == 1 and said[0] in (name[0], name[-1]):
            return True
        if same_name(said, name):
            return True
    return False


def _implied(answer: Reading, asked: Reading) -> bool | None:
    """The yes or no of an answer that says neither but repeats the question ("She did not sign"); None where it does
    not."""
    if not _ASKS_YES_NO.match(asked.bare):
        return None
    if answer.bare in ("correct", "that is correct", "incorrect", "that is incorrect"):
        return not answer.bare.endswith("incorrect")
    said = [word for word in answer.content if word not in NEGATIONS]
    if not said or not all(any(_akin(word, other) for other in asked.content) for word in said):
        return None
    return not answer.negated


def _akin(one: str, other: str) -> bool:
    """The same word in another form: "sign" and "signed"."""
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= 3 and long.startswith(short) and long[len(short) :] in _ENDINGS)


def match(answer: str, key: str, *, question: str = "", settings: MatchSettings = DEFAULT) -> Verdict:
    """Compare ``answer`` with ``key``. Symmetric in nothing: the key decides which kind of value is asked for.

    ``question`` only helps to tell words that restate it from further candidates. Never raises on any text.
    """
    if len(answer) > MAX_ANSWER_CHARS or len(key) > MAX_ANSWER_CHARS:
        return Verdict.WRONG
    a, k = read(answer, settings.day_first), read(key, settings.day_first)
    if not a.bare or not k.bare:
        return Verdict.WRONG
    if a.bare == k.bare:
        return Verdict.RIGHT
    asked = read(question[:MAX_ANSWER_CHARS], settings.day_first)
    if TO_THE_JUDGE & a.every - k.every - asked.every:
        return Verdict.WRONG
    if polarity := _POLARITY.match(k.bare):
        said = _POLARITY.match(a.bare)
        yes = said[1] in _YES if said else _implied(a, asked)
        if yes is None or yes != (polarity[1] in _YES):
            return Verdict.WRONG
        both = bool(a.every & _YES) and bool(a.every & {"no", "nope", "false"})
        named = {type(v) for v in a.values}
        denied = any(type(v) in named and not any(same_value(w, v) for w in a.values) for v in k.values)
        return Verdict.WRONG if both or denied or HEDGES & a.every - k.every else Verdict.RIGHT
    if a.digits and a.digits == k.digits:
        return Verdict.RIGHT
    if k.values:
        rest = set(k.content) - GENERIC
        if not rest:
            return _typed(a, k, asked, settings)
        if _values_verdict(a, k, asked) is Verdict.WRONG:
            return Verdict.WRONG
        counted = len(k.values) == 1 and isinstance(k.values[0], Number) and len(rest) == 1 and not k.proper
        if counted and not set(a.content) - GENERIC - rest and not _loose_ends(a, k, asked):
            return Verdict.RIGHT  # "12" for "12 desks"
        return _text(a, k, asked, settings)
    if not k.content:  # only small words: nothing but the same words will do
        return Verdict.RIGHT if a.every == k.every else Verdict.WRONG
    if not _loose_ends(a, k, asked) and _names(a, k, asked, settings):
        return Verdict.RIGHT
    verdict = _text(a, k, asked, settings)
    stray = any(not any(same_value(v, q) for q in asked.values) for v in a.values)
    return Verdict.UNSURE if stray and verdict is Verdict.RIGHT else verdict


@lru_cache(maxsize=1024)
def _spaced(text: str) -> str:
    return f" {' '.join(words(text))} "


@lru_cache(maxsize=1024)
def _scan(text: str, day_first: bool) -> tuple[Value, ...]:
    return scan(one_notation(fold(text)), day_first)[0]


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
    parsed = read(answer[:MAX_ANSWER_CHARS], settings.day_first)
    if not parsed.values or set(parsed.content) - GENERIC:
        return False
    held = _scan(text[:_MAX_MAIL_CHARS], settings.day_first)
    return all(any(same_value(a, k) for a in held) for k in parsed.values)
