"""Words that carry no meaning of their own between an answer, its key and its question."""

from __future__ import annotations


def vocabulary(text: str) -> tuple[str, ...]:
    return tuple(text.split())


STOP = frozenset(vocabulary(
    "a an the it its this that these those is are was were be been being am do does did has have had he she they we i "
    "you his her their our my your him them us me of in on at to for from by with as into about around and so then "
    "there here which who whom whose what when where will would can could shall should also just only very please "
    "approximately approx roughly maybe probably perhaps possibly s "
    "believe think guess"
))  # fmt: skip
GENERIC = frozenset(vocabulary(
    "answer final result room rm office meeting conference call scheduled held located set called named date time day "
    "number no phone tel telephone fax cell mobile email address mail name value amount total price cost budget sum "
    "owner owned sent written said says mentioned according takes place start starts begin begins beginning due "
    "between per each starting beginning ending"
))  # fmt: skip
"""Words that restate the question. They add nothing beside a value and are no second candidate."""
ABBREVIATIONS = {
    "ave": "avenue", "blvd": "boulevard", "rd": "road", "hwy": "highway", "pkwy": "parkway", "ste": "suite",
    "apt": "apartment", "bldg": "building", "dept": "department", "nothing": "none", "nobody": "none",
}  # fmt: skip
COMPANY_FORMS = frozenset(vocabulary("inc incorporated corp corporation co company llc llp lp ltd limited plc gmbh ag"))
"""A company's name is the same without them."""
NEGATIONS = frozenset(vocabulary(
    "not no never none nor neither without isn't wasn't aren't don't doesn't didn't won't can't cannot nothing nobody"
))  # fmt: skip
HEDGES = frozenset(("or", "either", "alternatively", "otherwise", "versus", "vs"))
TO_THE_JUDGE = frozenset(vocabulary("verdict grader grading rubric instructions"))
"""Words of a judge's work. An answer that uses them where neither key nor question does is none."""
