"""The same thing said in other words, brought to one notation before values are read: numbers and hours in words,
contractions, ranges of days. Every pattern has bounded repeats; text is folded already (``corpus_index.folding``).
"""

from __future__ import annotations

import re
from decimal import Decimal

FLAGS = re.IGNORECASE | re.ASCII
_SMALL = {
    name: index
    for index, name in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen".split()
    )
}
_TENS = {
    name: 10 * index for index, name in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
NUMBER_WORDS = _SMALL | _TENS
_ORDINALS = {
    name: index
    for index, name in enumerate(
        "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth "
        "fifteenth sixteenth seventeenth eighteenth nineteenth twentieth".split(), 1)
} | {"thirtieth": 30}  # fmt: skip
MONTH_NAMES = r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|" \
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"  # fmt: skip

_PLAIN = "|".join(NUMBER_WORDS)
_NUMERAL = f"(?:{_PLAIN}|hundred|{'|'.join(_SCALES)})"
_RUN = re.compile(
    rf"\b(?:an?\s(?=hundred|thousand|million|billion))?{_NUMERAL}(?:(?:\sand\s|\s|-){_NUMERAL}){{0,9}}\b", FLAGS
)
_AND_A_HALF = re.compile(rf"\b({_PLAIN}|\d{{1,6}})\sand\sa\shalf\b", FLAGS)
_UNIT_AND_A_HALF = re.compile(r"\b(?:an?|one)\s(year|month|week|day|hour|minute|mile|million)\sand\sa\shalf\b", FLAGS)
_HALF_A = re.compile(r"\bhalf\san?\s(year|month|day|hour|mile|million|billion|dozen)\b", FLAGS)
_DOZEN = re.compile(rf"\b(an?|{_PLAIN}|\d{{1,4}})\sdozen\b", FLAGS)
_FRACTION = re.compile(r"\b(\d{1,4})\s([13])/([24])\b(?!/)", FLAGS)
_PAST = re.compile(rf"\b(half\spast|quarter\spast|quarter\sto)\s({_PLAIN}|\d{{1,2}})\b", FLAGS)
_PART_OF_DAY = re.compile(
    rf"\b({_PLAIN}|\d{{1,2}}(?::\d\d)?)(?:\so'?clock)?\s(?:in\sthe\s(morning|afternoon|evening)|at\s(night))\b", FLAGS
)
_POINT_HOUR = re.compile(r"\b(\d{1,2})\.([0-5]\d)(?=\s?[ap]\.?\s?m\b)", FLAGS)
_ORDINAL = rf"(?:(twenty|thirty)-)?({'|'.join(_ORDINALS)})"
_ORDINAL_BEFORE = re.compile(rf"\b{_ORDINAL}(?=\s(?:of\s)?(?:{MONTH_NAMES})\b|\sfloor\b)", FLAGS)
_ORDINAL_AFTER = re.compile(rf"(\b(?:{MONTH_NAMES})\s(?:the\s)?){_ORDINAL}\b", FLAGS)
_SAME_MONTH = re.compile(rf"\b({MONTH_NAMES})\.?\s(\d{{1,2}})\s?(?:-|to|through|until)\s?\1\.?\s(\d{{1,2}})\b", FLAGS)
_SHORT_YEAR = re.compile(r"(?<!\w)'(\d\d)(?![\w'])", re.ASCII)
_NOT = re.compile(r"(?<=[a-z])n't\b", FLAGS)
_LATEST = re.compile(r"\b(?:no|not)\slater\sthan\b", FLAGS)
_PSI = re.compile(r"\bpounds?\sper\ssquare\sinch\b", FLAGS)
_WATT_HOURS = re.compile(r"\b(kilo|mega|giga)watt[\s-]hours?\b", FLAGS)
_HINT = re.compile(rf"\b(?:{_PLAIN}|hundred|half|quarter|dozen|{'|'.join(_ORDINALS)})\b", FLAGS)


def one_notation(text: str) -> str:
    """``text`` with numbers, hours, days and negations in the notation that ``rewards.scanning`` reads."""
    if "'" in text:
        text = re.sub(r"\bcan't\b", "can not", text, flags=FLAGS)
        text = re.sub(r"\bwon't\b", "will not", text, flags=FLAGS)
        text = _SHORT_YEAR.sub(lambda m: ("19" if int(m[1]) >= 70 else "20") + m[1], _NOT.sub(" not", text))
    if _HINT.search(text):
        text = _in_digits(text)
    if not any(character.isdigit() for character in text):
        return text
    text = _FRACTION.sub(lambda m: m[1] + str(Decimal(m[2]) / Decimal(m[3])).removeprefix("0"), text)
    text = _POINT_HOUR.sub(r"\1:\2", text)
    text = _PART_OF_DAY.sub(lambda m: f"{_value(m[1])} {'am' if m[2] and m[2].lower() == 'morning' else 'pm'}", text)
    text = _SAME_MONTH.sub(r"\1 \2-\3", text)
    text = _WATT_HOURS.sub(lambda m: f"{m[1][0].lower()}wh", _PSI.sub("psi", text))
    return _LATEST.sub("by", text)


def _in_digits(text: str) -> str:
    text = _UNIT_AND_A_HALF.sub(r"1.5 \1", text)
    text = _HALF_A.sub(r"0.5 \1", text)
    text = _AND_A_HALF.sub(lambda m: f"{_value(m[1])}.5", text)
    text = _DOZEN.sub(lambda m: str(12 * int(_value("one" if m[1].lower() in ("a", "an") else m[1]))), text)
    text = _PAST.sub(_clock, text)
    text = _PART_OF_DAY.sub(lambda m: f"{_value(m[1])}{m[0][len(m[1]) :]}", text)
    text = _ORDINAL_BEFORE.sub(lambda m: _nth(m[1], m[2]), text)
    text = _ORDINAL_AFTER.sub(lambda m: m[1] + _nth(m[2], m[3]), text)
    return _RUN.sub(_numeral, text)


def _value(word: str) -> str:
    return str(NUMBER_WORDS.get(word.lower(), word))


def _clock(match: re.Match[str]) -> str:
    hour = int(_value(match[2]))
    if not 1 <= hour <= 12:
        return match[0]
    kind = match[1].lower()
    if kind.endswith("past"):
        return f"{hour}:{30 if kind.startswith('half') else 15}"
    return f"{hour - 1 or 12}:45"


def _nth(tens: str | None, word: str) -> str:
    return f"{(_TENS[tens.lower()] if tens else 0) + _ORDINALS[word.lower()]}th"


def _numeral(match: re.Match[str]) -> str:
    """A run of numerals as digits, or as it stands where it is no one number ("four five") or a single plain word."""
    said = re.split(r"[\s-]", match[0].lower())
    if len(said) == 1 and said[0] in NUMBER_WORDS:
        return match[0]
    total, current = 0, -1  # -1: nothing said since the last scale
    last = "start"
    for word in said:
        if word in ("a", "an"):
            current = 1
        elif word == "and":
            if last not in ("hundred", "scale"):
                return match[0]
            continue
        elif word in _SMALL:
            if last == "small" or (last == "tens" and not 1 <= _SMALL[word] <= 9):
                return match[0]
            current, last = max(current, 0) + _SMALL[word], "small"
        elif word in _TENS:
            if last in ("small", "tens"):
                return match[0]
            current, last = max(current, 0) + _TENS[word], "tens"
        elif word == "hundred":
            if last in ("hundred", "scale") or current >= 100:
                return match[0]
            current, last = (1 if current < 0 else current) * 100, "hundred"
        else:
            scale = _SCALES[word]
            if current < 0 or (total and total % (scale * 1000)):
                return match[0]
            total, current, last = total + current * scale, -1, "scale"
    return str(total + max(current, 0))
