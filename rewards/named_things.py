"""The named things of questions and mails, found without a model.

**Entity tokens.** Without a model, a "named thing" is a capitalised word or a word with a digit. Left out: a small
stop list (question words, mail furniture such as "Re" and "Thanks"), and the first word of a sentence, which is
capitalised anyhow, unless the evidence writes it with a capital inside a sentence. Neighbouring entity tokens of a
question form one phrase ("Falcon Ridge"); a mail holds a phrase if it holds all its tokens, in any order, so that
"Allen, Phillip K." holds "Phillip Allen" while a mail about another Ridge does not hold "Falcon Ridge". For links
between mails a token must also point at something: months, weekdays, years, hours and small numbers do not, nor does a
word that the evidence elsewhere writes in lower case. Recipients link nothing, for long lists would link everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from corpus_index.document import Document
from corpus_index.entities import STOP, Token, distinctive, has_digit, tokenise
from rewards.answers import mentions


@dataclass(frozen=True, slots=True)
class MailWords:
    """``told`` is what the sender says (name, address, subject, body), ``text`` all a reader sees, header included.

    The sets are words: ``held`` of ``text``, the others of ``told``. ``inside``: with a capital inside a sentence.
    """

    told: str
    text: str
    held: frozenset[str]
    own: frozenset[str]
    capitals: frozenset[str]
    inside: frozenset[str]
    lower: frozenset[str]
    numbers: frozenset[str]


@lru_cache(maxsize=512)
def mail_words(document: Document) -> MailWords:
    told = "\n".join((document.sender_name, document.sender, document.subject, document.body))
    date = document.date.strftime("%A %d %B %Y, %Y-%m-%d, %H:%M") if document.date else ""
    text = "\n".join((*document.recipient_names, *document.recipients, date, told))
    # The address without its domain, which a whole company shares. "by", because a name opening a line is no sentence.
    address = document.sender.partition("@")[0].replace(".", " ").title()
    written = tokenise(f"by {document.sender_name}\nby {address}\n{document.subject}\n{document.body}")
    own = frozenset(t.word for t in written)
    return MailWords(
        told=told,
        text=text,
        held=own | frozenset(t.word for t in tokenise(text)),
        own=own,
        capitals=frozenset(t.word for t in written if t.capital),
        inside=frozenset(t.word for t in written if t.capital and not t.first),
        lower=frozenset(t.word for t in written if not t.capital),
        numbers=frozenset(t.word for t in written if has_digit(t.word)),
    )


def phrases_of(question: str, mails: Sequence[MailWords]) -> list[tuple[str, ...]]:
    """The named things of a question, each as its neighbouring entity tokens."""
    tokens = tokenise(question)
    inside = frozenset().union(*(mail.inside for mail in mails))
    lower = frozenset().union(*(mail.lower for mail in mails))

    def named(token: Token) -> bool:
        if token.word in STOP:
            return False
        return has_digit(token.word) or (token.capital and (not token.first or token.word in inside))

    marks = [named(token) for token in tokens]
    if not any(marks):  # a question without capitals: take what the evidence always writes with one
        marks = [t.word in inside and t.word not in lower and t.word not in STOP for t in tokens]
    phrases: list[list[str]] = []
    open_phrase = False
    for token, mark in zip(tokens, marks, strict=True):
        if mark and open_phrase and token.touches:
            phrases[-1].append(token.word)
        elif mark:
            phrases.append([token.word])
        open_phrase = mark
    return [tuple(phrase) for phrase in phrases]


def holds(mail: MailWords, phrase: tuple[str, ...]) -> bool:
    """All tokens, or the same value in another notation: "EB-3267" for "EB3267"."""
    return mail.held.issuperset(phrase) or (any(map(has_digit, phrase)) and mentions(mail.text, " ".join(phrase)))


def distinctive_things(phrases: Sequence[tuple[str, ...]]) -> list[list[str]]:
    """Of each phrase the tokens that point at something; phrases of calendar words and small numbers are left out."""
    return [kept for phrase in phrases if (kept := [word for word in phrase if distinctive(word)])]


def links(mails: Sequence[MailWords], named: frozenset[str]) -> list[set[str]]:
    """Of each mail the entity tokens that could lead to another one; ``named`` are words that the question says."""
    inside = frozenset().union(*(mail.inside for mail in mails))
    lower = frozenset().union(*(mail.lower for mail in mails))
    return [
        {w for w in ((mail.capitals & inside) - lower) | mail.numbers if distinctive(w)} - named for mail in mails
    ]  # fmt: skip
