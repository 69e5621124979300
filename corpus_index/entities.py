"""Named things in text, without a model: capitalised words and words with a digit.

Left out: a small stop list (question words, mail furniture such as "Re" and "Thanks"). The first word of a sentence is
capitalised anyhow, so whoever asks decides by other evidence whether it is a name.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from corpus_index.folding import WORD, words

STOP = frozenset(
    [
        *("who", "whom", "whose", "what", "which", "when", "where", "why", "how", "is", "are", "was", "were", "do"),
        *("does", "did", "can", "could", "will", "would", "should", "the", "a", "an", "in", "on", "at", "of", "for"),
        *("from", "to", "by", "with", "and", "or", "if", "i", "we", "you", "he", "she", "it", "they", "my", "our"),
        *("your", "his", "her", "their", "this", "that", "these", "those", "there", "please", "name", "give", "find"),
        *("tell", "according", "after", "before", "during", "as", "has", "have", "had", "not", "no", "yes"),
        *("re", "fw", "fwd", "cc", "bcc", "subject", "sent", "date", "original", "message", "forwarded", "dear", "hi"),
        *("hello", "thanks", "thank", "regards", "best", "attached", "mail", "email", "e-mail", "am", "pm"),
    ]
)
CALENDAR = frozenset(
    [
        *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "mon", "tue", "tues", "wed"),
        *("thu", "thur", "thurs", "fri", "sat", "sun", "january", "february", "march", "april", "may", "june", "july"),
        *("august", "september", "october", "november", "december", "jan", "feb", "mar", "apr", "jun", "jul", "aug"),
        *("sep", "sept", "oct", "nov", "dec"),
    ]
)
"""Must be grounded, but a shared month or weekday links no two mails."""
_SENTENCE_END = frozenset(".!?:\n\r")
_CLOCK_OR_NTH = re.compile(r"\d{1,2}(?:am|pm|st|nd|rd|th)")
_MAX_MAIL_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class Token:
    """``word`` is casefolded, without accents and possessive 's."""

    word: str
    capital: bool
    first: bool
    """Opens a sentence or a line."""
    touches: bool
    """Only spaces, hyphens or "&" lie between it and the token before."""


def tokenise(text: str) -> list[Token]:
    """The words of a text in order; at most its first 100 000 characters are read."""
    tokens: list[Token] = []
    text = unicodedata.normalize("NFKC", text[:_MAX_MAIL_CHARS]).replace("’", "'")[:_MAX_MAIL_CHARS]
    end = 0
    for found in WORD.finditer(text):
        gap = text[end : found.start()]
        # "Phillip K. Allen": the point after an initial ends no sentence.
        initial = bool(tokens) and len(tokens[-1].word) == 1 and gap.strip() == "."
        first = not tokens or (not initial and not _SENTENCE_END.isdisjoint(gap))
        touches = bool(tokens) and (initial or not gap.strip(" -&"))
        word = found[0].casefold().removesuffix("'s")
        if not word.isascii():
            word = "".join(words(word)) or word  # accents off, as in answers
        tokens.append(Token(word, found[0][0].isupper(), first, touches))
        end = found.end()
    return tokens


def has_digit(word: str) -> bool:
    return any(c.isdigit() for c in word)


def distinctive(word: str) -> bool:
    """Can this token alone point at a thing? Months, years and small numbers cannot."""
    if word in STOP or word in CALENDAR or len(word) < 2:
        return False
    if word.isdecimal():
        return len(word) >= 3 and not (len(word) == 4 and word[:2] in ("19", "20"))
    return not _CLOCK_OR_NTH.fullmatch(word)


def named_things(text: str) -> list[str]:
    """The named things of a text in order of first sight, each once: neighbouring entity words joined by a blank.

    ``Amber Falcon moved to EB-3267`` gives ``amber falcon`` and ``eb 3267``. An entity word has a digit or a capital;
    one that opens a sentence counts only where another follows or where it has a capital inside a sentence as well. A
    thing that ``distinctive`` finds nothing in is left out.
    """
    found = tokenise(text)
    inside = {token.word for token in found if token.capital and not token.first}
    phrases: list[list[Token]] = []
    open_phrase = False
    for token in found:
        entity = token.word not in STOP and (token.capital or has_digit(token.word))
        if entity and open_phrase and token.touches:
            phrases[-1].append(token)
        elif entity:
            phrases.append([token])
        open_phrase = entity
    named = [
        phrase
        for phrase in phrases
        if len(phrase) > 1 or not phrase[0].first or has_digit(phrase[0].word) or phrase[0].word in inside
    ]
    texts = (" ".join(token.word for token in phrase) for phrase in named if any(distinctive(t.word) for t in phrase))
    return list(dict.fromkeys(texts))
