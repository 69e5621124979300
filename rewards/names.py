"""Is this the same person? Titles, initials, order and short forms of first names make no other one."""

from __future__ import annotations

from collections.abc import Sequence

from corpus_index.folding import words

TITLES = frozenset("mr mrs ms miss dr prof professor sir jr sr ii iii phd md esq cpa".split())
_SHORT_FORMS = {
    short: frozenset(full.split())
    for shorts, full in {
        "bob bobby rob robby": "robert", "bill billy will": "william", "mike mick": "michael", "jim jimmy": "james",
        "liz beth betty lizzie eliza": "elizabeth", "kathy kate katie cathy kath": "katherine catherine kathryn",
        "tom tommy": "thomas", "dick rick rich ricky": "richard", "joe joey": "joseph", "dave": "david",
        "steve": "steven stephen", "chris": "christopher christine christina", "tony": "anthony", "dan danny": "daniel",
        "ben": "benjamin", "greg": "gregory", "jeff": "jeffrey geoffrey", "ken kenny": "kenneth", "matt": "matthew",
        "pat": "patrick patricia", "ed eddie ted": "edward", "sam": "samuel samantha", "sue": "susan", "jen jenny":
        "jennifer", "peggy maggie meg": "margaret", "andy drew": "andrew", "nick": "nicholas", "larry": "lawrence",
        "charlie chuck": "charles", "deb debbie": "deborah debra", "barb": "barbara", "fred": "frederick", "phil":
        "phillip philip", "ron": "ronald", "don": "donald", "doug": "douglas", "jerry": "gerald jerome", "alex":
        "alexander alexandra", "vicky vicki": "victoria", "cindy": "cynthia", "sally": "sarah", "jack johnny": "john",
    }.items()
    for short in shorts.split()
}  # fmt: skip


def name_of(text: str, content: Sequence[str]) -> tuple[str, ...]:
    """First to last name in order, or () where ``content``, the words of ``text`` that count, can be no one's name."""
    tokens = [w for w in content if w not in TITLES]
    if not 1 <= len(tokens) <= 4 or not all(w.replace("'", "").isalpha() for w in tokens):
        return ()
    before, comma, after = text.partition(",")
    if comma and "," not in after:
        last = [w for w in words(before) if w in tokens]
        first = [w for w in words(after) if w in tokens]
        if last and first:  # "Allen, Phillip K."
            tokens = [*first, *last]
    return tuple(tokens)


def same_name(one: Sequence[str], other: Sequence[str]) -> bool:
    """Same last name, first names equal, short for or an initial of each other, middle names equal, initials or left
    out."""
    if min(len(one), len(other)) < 2 or len(one[-1]) < 2 or not _spelled_alike(one[-1], other[-1]):
        return False
    if not (_fits(one[0], other[0]) or _short_for(one[0], other[0])):
        return False
    middle, others = one[1:-1], other[1:-1]
    if middle and others:
        return len(middle) == len(others) and all(map(_fits, middle, others))
    return all(len(part) == 1 for part in (*middle, *others))


def _spelled_alike(one: str, other: str) -> bool:
    return one.replace("'", "") == other.replace("'", "")


def _fits(one: str, other: str) -> bool:
    return one == other or (min(len(one), len(other)) == 1 and one[0] == other[0])


def _short_for(one: str, other: str) -> bool:
    full, others = _SHORT_FORMS.get(one, frozenset({one})), _SHORT_FORMS.get(other, frozenset({other}))
    return not full.isdisjoint(others)
