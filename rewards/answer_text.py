"""A text as the matcher compares it: its typed values, and the words around them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from corpus_index.folding import WORD, fold, words
from rewards.claims import claim
from rewards.names import name_of
from rewards.rewording import FLAGS, one_notation
from rewards.scanning import scan
from rewards.values import Value
from rewards.vocabulary import ABBREVIATIONS, COMPANY_FORMS, NEGATIONS, STOP

MAX_ANSWER_CHARS = 2000
"""A longer answer or key is WRONG unread: nothing that long is one claim."""

_EDGES = " \t\n\"'`.,;:!?()[]{}<>*_"
_LETTER_DIGIT_GAP = re.compile(r"(?<=[a-z])[\s-]{1,3}(?=\d)|(?<=\d)[\s-]{1,3}(?=[a-z])")
_ITEM_GAP = re.compile(r"[,;\n&+|/]|\band\b", FLAGS)
_LISTING = re.compile(r"[;&+]|\band\b", FLAGS)

_ONE_NUMBER = re.compile(
    r"(?:x|ext\b\.?|extension\b|no\b\.?|number\b|code\b|passcode\b)?[\s:#]{0,3}([\d\s()+#-]{5,40})", FLAGS
)


@dataclass(frozen=True, slots=True)
class Reading:
    bare: str
    """Casefolded, without edge punctuation, and with "EB-3267" and "EB 3267" both as "eb3267"."""
    rest: str
    """The text, its values blanked."""
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
    digits: str
    """Of a text that is one number of five digits or more, in any grouping: "884 2016#" and "884-2016"."""

    @property
    def negated(self) -> bool:
        return not NEGATIONS.isdisjoint(self.every)


@lru_cache(maxsize=16384)
def read(text: str, day_first: bool) -> Reading:
    said = one_notation(claim(fold(text)[: 2 * MAX_ANSWER_CHARS]))
    values, rest = scan(said, day_first)
    content, proper = _content(rest)
    items = tuple(frozenset(item) for part in _ITEM_GAP.split(rest) if (item := _item(part)))
    return Reading(
        bare=_LETTER_DIGIT_GAP.sub("", said.casefold().strip(_EDGES)),
        rest=rest,
        values=values,
        content=content,
        proper=proper,
        every=frozenset(words(said)),
        name=name_of(rest, content),
        items=items,
        listed=len(items) > 1 and max(map(len, items)) <= 3 and (len(items) > 2 or bool(_LISTING.search(rest))),
        slashed="/" in rest,
        digits=_digits(said),
    )


def _digits(said: str) -> str:
    found = _ONE_NUMBER.fullmatch(said)
    digits = re.sub(r"\D", "", found[1]) if found else ""
    return digits if len(digits) >= 5 else ""


def _item(part: str) -> list[str]:
    return [ABBREVIATIONS.get(w, w) for w in words(part) if w not in STOP and w not in COMPANY_FORMS]


def content_words(rest: str) -> tuple[str, ...]:
    """The words of ``rest`` that carry meaning, in order."""
    return _content(rest)[0]


def _content(rest: str) -> tuple[tuple[str, ...], frozenset[str]]:
    content: list[str] = []
    proper: set[str] = set()
    for token in WORD.findall(rest):
        word = token.casefold().removesuffix("'s")
        capital = token[0].isupper()
        if word in STOP and not (capital and word in ("will", "may") and content == []):
            continue
        word = ABBREVIATIONS.get(word, word)
        content.append(word)
        if capital:
            proper.add(word)
    if len(content) > 1 and content[-1] in COMPANY_FORMS:
        proper.discard(content.pop())
    return tuple(content), frozenset(proper)
