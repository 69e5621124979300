"""Does an answer say the same as the key? A rule matcher: fast, deterministic, and deaf to what the text asks for.

Both texts are read into typed values (money, percent, dates, times, weekdays, phones, addresses, room-like codes,
numbers with units) and the words around them. The game this file guards: an answer is paid for *one* claim. It wins
only if every value of the key is there and nothing else could have been meant; listing candidates is wrong even when
the right one is among them. Typed keys always get RIGHT or WRONG; UNSURE exists only for free text in the grey band.

Text is untrusted: lengths are capped before any pattern runs, and every pattern has bounded repeats.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field

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


# --- typed values ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Money:
    amount: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class Percent:
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Number:
    amount: Decimal
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Date:
    """0 stands for a part that the text does not give."""

    year: int
    month: int
    day: int


@dataclass(frozen=True, slots=True)
class Weekday:
    index: int


@dataclass(frozen=True, slots=True)
class Time:
    """Minutes after midnight. ``loose``: no am/pm given and the hour is at most 12. ``end`` is -1 without a range."""

    start: int
    end: int
    loose: bool
    zone: str


@dataclass(frozen=True, slots=True)
class Phone:
    digits: str


@dataclass(frozen=True, slots=True)
class Extension:
    digits: str


@dataclass(frozen=True, slots=True)
class Email:
    address: str


@dataclass(frozen=True, slots=True)
class Code:
    """A room, part or flight number: letters and digits, compared without spaces and hyphens."""

    text: str


Value = Money | Percent | Number | Date | Weekday | Time | Phone | Extension | Email | Code


def _vocabulary(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_WHEN = (Date, Weekday, Time)  # one appointment: naming the day beside the hour is no second candidate

_CURRENCY = {
    "$": "USD", "us$": "USD", "usd": "USD", "dollar": "USD", "dollars": "USD", "buck": "USD", "bucks": "USD",
    "c$": "CAD", "cad": "CAD", "€": "EUR", "eur": "EUR", "euro": "EUR", "euros": "EUR", "£": "GBP", "gbp": "GBP",
    "pound": "GBP", "pounds": "GBP", "¥": "JPY", "jpy": "JPY", "yen": "JPY",
}  # fmt: skip
_SCALE = {
    "k": 10**3, "thousand": 10**3, "m": 10**6, "mm": 10**6, "mil": 10**6, "million": 10**6,
    "b": 10**9, "bn": 10**9, "billion": 10**9,
}  # fmt: skip
_UNITS: dict[str, tuple[str, Decimal]] = {
    name: (dimension, Decimal(factor))
    for dimension, table in {
        "time": {"second seconds sec secs": "1", "minute minutes min mins": "60", "hour hours hr hrs": "3600",
                 "day days": "86400", "week weeks": "604800"},
        "months": {"month months": "1", "year years yr yrs": "12"},
        "length": {"mm": "0.001", "cm": "0.01", "metre metres meter meters": "1", "km": "1000",
                   "inch inches": "0.0254", "foot feet ft": "0.3048", "mile miles": "1609.344"},
        "mass": {"kg kilo kilos": "1", "lb lbs": "0.45359237", "ton tons": "907.18474", "tonne tonnes": "1000"},
        "power": {"kw": "1", "mw": "1000", "gw": "1000000"},
        "energy": {"kwh": "1", "mwh": "1000", "gwh": "1000000"},
        "heat": {"mmbtu mmbtus": "1", "bcf": "1037000"},
        "volume": {"barrel barrels bbl bbls": "1"},
        "data": {"kb": "1", "mb": "1024", "gb": "1048576"},
        "person": {"person persons people": "1"},
    }.items()
    for names, factor in table.items()
    for name in names.split()
}  # fmt: skip
_MONTHS = {
    name: index
    for index, names in enumerate(
        ("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug",
         "september sept sep", "october oct", "november nov", "december dec"), start=1)
    for name in names.split()
}  # fmt: skip
_WEEKDAYS = {
    name: index
    for index, names in enumerate(
        ("monday mon", "tuesday tues tue", "wednesday wed", "thursday thurs thur thu", "friday fri", "saturday sat",
         "sunday sun"))
    for name in names.split()
}  # fmt: skip
_NUMBER_WORDS = {
    name: index
    for index, name in enumerate(_vocabulary(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty"))
} | {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}  # fmt: skip
_ZONES = {"c": "central", "e": "eastern", "p": "pacific", "m": "mountain", "g": "utc", "u": "utc"}

_FLAGS = re.IGNORECASE | re.ASCII
_NUM = r"(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,15})(?:\.\d{1,9})?(?!\d)|\.\d{1,9}(?!\d)"
_SIGN = r"(?<![\w.,$])((?:(?<![^\s(])-)?)"
_MONTH = r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|" \
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"  # fmt: skip
_NTH = r"(\d{1,2})(?:st|nd|rd|th)?(?![\w:])"
_YEAR = r"(?:,?\s{0,2}(?:of\s)?((?:19|20)\d\d)(?!\d))?"
_MORE = rf"((?:\s{{0,2}}(?:,\s?and|,|and|&|-|to|through)\s{{0,2}}{_NTH.replace('(', '(?:', 1)}(?!\s?[ap]\.?m)){{0,6}})"
_AMPM = r"([ap])\.?\s?m\b\.?"
_CLOCK = rf"(\d{{1,2}})(?::(\d\d))?(?!\d)\s{{0,2}}(?:{_AMPM})?"
_ZONE = r"(?:\s?\(?([cepm][sd]?t|gmt|utc)\b\)?)?"

_EMAIL = re.compile(r"[\w.+'-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}", _FLAGS)
_ISO = re.compile(r"(?<![\w-])((?:19|20)\d\d)[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)", _FLAGS)
_SLASHED = re.compile(r"(?<![\w/.-])(\d{1,2})([/.-])(\d{1,2})(?:\2(\d{4}|\d\d))?(?![\w/-])(?!\.\d)", _FLAGS)
_MONTH_DAY = re.compile(rf"\b{_MONTH}\s{{0,2}}(?:the\s)?{_NTH}{_MORE}{_YEAR}", _FLAGS)
_DAY_MONTH = re.compile(rf"(?<![\w:.$]){_NTH}\s?-?(?:of\s)?{_MONTH}-?{_YEAR}", _FLAGS)
_MONTH_YEAR = re.compile(rf"\b{_MONTH},?\s{{0,2}}(?:of\s)?((?:19|20)\d\d)(?!\d)", _FLAGS)
_EXTENSION = re.compile(r"(?<!\w)(?:x|ext\b\.?|extension\b)\s?(\d{2,6})(?!\w)", _FLAGS)
_PHONE = re.compile(
    r"(?<![\w.,$-])(?:\+?\d{1,3}[\s.-])?(?:\(\d{3}\)|\d{3})[\s./-]{0,2}\d{3}[\s.-]?\d{4}(?![\w,])"
    r"|(?<![\w.,$-])\d{3}[-.]\d{4}(?![\w,])"
    r"|(?<![\w.,$-])\+?\d{1,3}(?:[\s.-]\d{1,4}){3,8}(?![\w,])",
    _FLAGS,
)
_TIMES = re.compile(rf"(?<![\w:.$]){_CLOCK}{_ZONE}\s?(?:-|to\b|until\b|till\b)\s?{_CLOCK}{_ZONE}(?!\w)", _FLAGS)
_TIME = re.compile(rf"(?<![\w:.$]){_CLOCK}\s?(?:o'?clock\b)?{_ZONE}(?!\w)", _FLAGS)
_OCLOCK = re.compile(r"(?<![\w:.])(\d{1,2})\s?o'?clock\b", _FLAGS)
_NOON = re.compile(r"\b(?:12\s)?(noon|midday|midnight)\b", _FLAGS)
_SCALES = r"(?:\s?(k|thousand|mm|mil|million|m|bn|billion|b)\b)?"
_CURRENCY_WORD = r"(usd|dollars?|bucks?|cad|eur|euros?|gbp|pounds?|jpy|yen)\b"
_MONEY = re.compile(
    rf"(-?)(?<![\w.])(us\$|c\$|[$€£¥]|usd|cad|eur|gbp|jpy)\s?(-?)({_NUM}){_SCALES}(?:\s?{_CURRENCY_WORD})?"
    rf"|{_SIGN}({_NUM}){_SCALES}\s?{_CURRENCY_WORD}",
    _FLAGS,
)
_PERCENT = re.compile(rf"{_SIGN}({_NUM})\s?(?:%|percent\b|per\scent\b|pct\b)", _FLAGS)
_ORDINAL = re.compile(r"(?<![\w.])(\d{1,6})(?:st|nd|rd|th)\b", _FLAGS)
_CODE = re.compile(
    r"(?<![\w.])(?:(?-i:[A-Z]{1,4})[\s-]\d{1,5}[a-z]?\d{0,3}|\d{1,3}\s(?-i:[A-Z])\d{1,3}|\d{1,4}-(?-i:[A-Z])\b"
    r"|[a-z]{1,8}-?\d{1,8}(?:-?[a-z]{1,3}\d{0,4})?|\d{1,6}[a-z]{1,3}\d{1,5}|\d{1,5}-?[a-z](?<![km])"
    r"|\d{1,6}(?:-\d{1,6}){1,3})(?![\w%])",
    _FLAGS,
)
_SPACED_CODE = re.compile(r"(?<![\w.])([a-z]{2,3})\s(\d{2,5})(?![\w.,:%])", re.ASCII)
_NUMBER = re.compile(rf"{_SIGN}({_NUM})(?:\s?(k|mm|thousand|million|bn|billion)\b)?(?:[\s-]?([a-z]{{2,7}})\b)?", _FLAGS)
_WEEKDAY = re.compile(
    r"\b(monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?\b"
    r"|\b(?-i:(Mon|Tues|Tue|Wed|Thurs|Thur|Thu|Fri|Sat|Sun))\b\.?",
    _FLAGS,
)
_NUMBER_WORD = re.compile(r"\b(" + "|".join(_NUMBER_WORDS) + r")\b(?:[\s-]([a-z]{2,7})\b)?", _FLAGS)
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def _amount(digits: str, scale: str | None = None, sign: str = "") -> Decimal:
    amount = Decimal(digits.replace(",", "")) * _SCALE.get((scale or "").lower(), 1)
    return (-amount if sign else amount).normalize()


def _date(year: str | int | None, month: int, day: int) -> Date | None:
    number = int(year or 0)
    if number and number < 100:  # two digits: mail archives start in the 1970s
        number += 2000 if number < 70 else 1900
    return Date(number, month, day) if 1 <= month <= 12 and 0 <= day <= 31 else None


def _clock(hour: str, minute: str | None, half: str | None) -> tuple[int, bool] | None:
    h, m = int(hour), int(minute or 0)
    if h > 24 or m > 59 or (half and not 1 <= h <= 12):
        return None
    if half:
        h = h % 12 + (12 if half.lower() == "p" else 0)
    return h % 24 * 60 + m, not half and 1 <= h <= 12


def _zone(text: str | None) -> str:
    return _ZONES.get(text[0].lower(), "") if text else ""


class _Scanner:
    """Takes values out of a text, most specific pattern first; a taken span is blanked so that it is read once."""

    def __init__(self, text: str, day_first: bool) -> None:
        self.rest = text
        self.values: list[Value] = []
        self._day_first = day_first

    def _take(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        yield from pattern.finditer(self.rest)

    def _keep(self, found: re.Match[str], *values: Value) -> None:
        self.values.extend(values)
        # Same length, so that the spans of later matches of this pass still fit.
        self.rest = f"{self.rest[: found.start()]}{'|' * (found.end() - found.start())}{self.rest[found.end() :]}"

    def run(self) -> None:
        if not any(character.isdigit() or character == "@" for character in self.rest):
            self._words()
            return
        for m in self._take(_EMAIL):
            self._keep(m, Email(m[0].lower().strip(".'")))
        self._dates()
        for m in self._take(_EXTENSION):
            self._keep(m, Extension(m[1]))
        for m in self._take(_PHONE):
            digits = re.sub(r"\D", "", m[0])
            if len(digits) in (7, 10, 11) or (len(digits) >= 9 and len(digits) <= 15):
                self._keep(m, Phone(digits))
        self._times()
        for m in self._take(_MONEY):
            if m[4]:
                currency = _CURRENCY[(m[6] or m[2]).lower()]
                self._keep(m, Money(_amount(m[4], m[5], m[1] or m[3]), currency))
            else:
                self._keep(m, Money(_amount(m[8], m[9], m[7]), _CURRENCY[m[10].lower()]))
        for m in self._take(_PERCENT):
            self._keep(m, Percent(_amount(m[2], None, m[1])))
        for m in self._take(_ORDINAL):
            self._keep(m, Number(Decimal(m[1])))
        for m in self._take(_NUMBER):  # numbers with a known unit, before "5mw" could pass for a code
            if m[4] and m[4].lower() in _UNITS and not m[3]:
                self._keep(m, Number(_amount(m[2], None, m[1]), m[4].lower()))
        for m in self._take(_CODE):
            self._keep(m, Code(re.sub(r"[\s-]", "", m[0]).lower()))
        for m in self._take(_SPACED_CODE):
            if m[1] not in _STOP and m[1] not in _GENERIC:
                self._keep(m, Code(m[1] + m[2]))
        for m in self._take(_NUMBER):
            unit = (m[4] or "").lower()
            self._keep(m, Number(_amount(m[2], m[3], m[1]), unit if unit in _UNITS else ""))
            if unit and unit not in _UNITS:  # an ordinary word after the number: give it back
                self.rest = f"{self.rest[: m.start(4)]}{m[4]}{self.rest[m.end(4) :]}"
        self._words()

    def _dates(self) -> None:
        for m in self._take(_ISO):
            if date := _date(m[1], int(m[2]), int(m[3])):
                self._keep(m, date)
        for m in self._take(_MONTH_DAY):
            days = [int(m[2]), *(int(d) for d in re.findall(r"\d{1,2}", m[3] or ""))]
            dates = [_date(m[4], _MONTHS[m[1].lower()], day) for day in days]
            if all(dates):
                self._keep(m, *(date for date in dates if date))
        for m in self._take(_DAY_MONTH):
            if date := _date(m[3], _MONTHS[m[2].lower()], int(m[1])):
                self._keep(m, date)
        for m in self._take(_MONTH_YEAR):
            if date := _date(m[2], _MONTHS[m[1].lower()], 0):
                self._keep(m, date)
        for m in self._take(_SLASHED):
            first, second = int(m[1]), int(m[3])
            # "2.5" is a number and "10-11" a range: only a slash stands for a date without its year.
            if m[2] != "/" and not m[4]:
                continue
            day_first = self._day_first or m[2] == "." or first > 12
            month, day = (second, first) if day_first else (first, second)
            if day and (date := _date(m[4], month, day)):
                self._keep(m, date)

    def _times(self) -> None:
        for m in self._take(_TIMES):
            if not (m[7] or (m[2] and m[6])):
                continue
            end, start = _clock(m[5], m[6], m[7]), _clock(m[1], m[2], m[3] or m[7])
            if start and end and not m[3] and m[7] and start[0] > end[0]:
                start = _clock(m[1], m[2], "a" if m[7].lower() == "p" else "p")  # "11-1pm" starts before noon
            if start and end:
                self._keep(m, Time(start[0], end[0], start[1], _zone(m[8] or m[4])))
        for m in self._take(_TIME):
            if (m[2] or m[3]) and (start := _clock(m[1], m[2], m[3])):
                self._keep(m, Time(start[0], -1, start[1], _zone(m[4])))
        for m in self._take(_OCLOCK):
            if start := _clock(m[1], None, None):
                self._keep(m, Time(start[0], -1, start[1], ""))

    def _words(self) -> None:
        for m in self._take(_NOON):
            self._keep(m, Time(0 if m[1].lower() == "midnight" else 720, -1, False, ""))
        for m in self._take(_WEEKDAY):
            self._keep(m, Weekday(_WEEKDAYS[(m[1] or m[2]).lower()]))
        for m in self._take(_NUMBER_WORD):
            unit = (m[2] or "").lower()
            if m[1].lower() == "one" and unit not in _UNITS and self.rest.strip(" .|").lower() != "one":
                continue  # "one of them" counts nothing
            self._keep(m, Number(Decimal(_NUMBER_WORDS[m[1].lower()]), unit if unit in _UNITS else ""))
            if unit and unit not in _UNITS:
                self.rest = f"{self.rest[: m.start(2)]}{m[2]}{self.rest[m.end(2) :]}"
        month = self.rest.strip(" .,|").lower()
        if month in _MONTHS and not any(isinstance(value, Date) for value in self.values):
            self.values.append(Date(0, _MONTHS[month], 0))
            self.rest = ""


# --- reading a text ----------------------------------------------------------------------------------------------

_STOP = frozenset(_vocabulary(
    "a an the it its this that these those is are was were be been being am do does did has have had he she they we i "
    "you his her their our my your him them us me of in on at to for from by with as into about around and so then "
    "there here which who whom whose what when where will would can could shall should also just only very please "
    "approximately approx roughly maybe probably perhaps possibly s"
))  # fmt: skip
_GENERIC = frozenset(_vocabulary(
    "answer final result room rm office meeting conference call scheduled held located set called named date time day "
    "number no phone tel telephone fax cell mobile email address mail name value amount total price cost budget sum "
    "owner owned sent written said says mentioned according takes place start starts begin begins beginning due "
    "between per each"
))  # fmt: skip
"""Words that restate the question. They add nothing beside a value and are no second candidate."""
_NEGATIONS = frozenset(_vocabulary(
    "not no never none nor neither without isn't wasn't aren't don't doesn't didn't won't can't"
))  # fmt: skip
_HEDGES = frozenset(("or", "either", "alternatively", "otherwise", "versus", "vs"))
_TIES = frozenset(("from", "of", "at", "in", "with"))  # "Steve Ehrenreich from Arthur Andersen" names one person
_TITLES = frozenset(_vocabulary("mr mrs ms miss dr prof professor sir jr sr ii iii"))
_POLARITY = re.compile(r"(yes|yeah|yep|no|nope|true|false)\s{0,3}(?:$|[.,;:!-]\s{0,3}(?!\d))", _FLAGS)
_LEAD_IN = re.compile(r"^(?:the\s)?(?:final\s)?answer(?:\sis\s?:?|:)\s?(?=\S)", _FLAGS)
_YES = frozenset(("yes", "yeah", "yep", "true"))
_EDGES = " \t\n\"'`.,;:!?()[]{}<>*_"
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "‑": "-"})
_LETTER_DIGIT_GAP = re.compile(r"(?<=[a-z])[\s-]{1,3}(?=\d)|(?<=\d)[\s-]{1,3}(?=[a-z])")
_ITEM_GAP = re.compile(r"[,;\n&+|]|\band\b", _FLAGS)

_LISTING = re.compile(r"[;&+]|\band\b", _FLAGS)


def _fold(text: str) -> str:
    """One alphabet: compatibility forms, accents, invisible characters, quotes and dashes evened out; case kept."""
    if text.isascii():
        return " ".join(text.split())
    # One character can become 18 in NFKC: honest text hardly grows, and a flood is cut before the slow steps.
    text = unicodedata.normalize("NFKC", text.translate(_QUOTES))[: len(text) + 1000]
    text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) not in ("Mn", "Cf"))
    return " ".join(unicodedata.normalize("NFC", text).split())


def _bare(text: str) -> str:
    """Casefolded, without edge punctuation, and with "EB-3267" and "EB 3267" both as "eb3267"."""
    return _LETTER_DIGIT_GAP.sub("", text.casefold().strip(_EDGES))


def words(text: str) -> tuple[str, ...]:
    """Casefolded words of ``text`` in order: runs of letters and digits, possessive 's dropped."""
    return tuple(w.removesuffix("'s") for w in _WORD.findall(_fold(text).casefold()))


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
    folded = _LEAD_IN.sub("", _fold(text)[: 2 * MAX_ANSWER_CHARS])
    scanner = _Scanner(folded, day_first)
    scanner.run()
    content: list[str] = []
    proper: set[str] = set()
    for token in _WORD.findall(scanner.rest):
        word = token.casefold().removesuffix("'s")
        capital = token[0].isupper()
        if word in _STOP and not (capital and word in ("will", "may") and content == []):
            continue
        content.append(word)
        if capital:
            proper.add(word)
    items = tuple(
        frozenset(item)
        for part in _ITEM_GAP.split(scanner.rest)
        if (item := [w for w in words(part) if w not in _STOP])
    )
    return _Parsed(
        folded=folded,
        bare=_bare(folded),
        values=tuple(scanner.values),
        content=tuple(content),
        proper=frozenset(proper),
        every=frozenset(words(folded)),
        name=_name(scanner.rest, tuple(content)),
        items=items,
        listed=len(items) > 1 and max(map(len, items)) <= 3 and (len(items) > 2 or bool(_LISTING.search(scanner.rest))),
        slashed="/" in scanner.rest,
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
            (kind, factor), (other, key_factor) = _UNITS[a.unit], _UNITS[k.unit]
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
        if isinstance(a, _WHEN) and any(isinstance(k, _WHEN) for k in key.values):
            continue
        if not any(_same(a, q) for q in asked.values):
            return Verdict.WRONG  # values of every kind at once would pay whatever the question was
    return Verdict.RIGHT


def _extras(answer: _Parsed, key: _Parsed, asked: _Parsed) -> tuple[set[str], set[str]]:
    """(all, capitalised) words of the answer that neither the key nor the question accounts for."""
    restated = set(asked.content)
    if restated & set(key.content):  # the question names candidates: its names are no longer innocent
        restated -= asked.proper
    extra = set(answer.content) - set(key.content) - _GENERIC - restated
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
        wanted -= _GENERIC
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
        rest = set(k.content) - _GENERIC
        if not rest:
            return _typed(a, k, asked, settings)
        if _values_verdict(a, k, asked) is Verdict.WRONG:
            return Verdict.WRONG
        counted = len(k.values) == 1 and isinstance(k.values[0], Number) and len(rest) == 1 and not k.proper
        if counted and not set(a.content) - _GENERIC - rest and not _loose_ends(a, k):
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
    scanner = _Scanner(_fold(text), day_first)
    scanner.run()
    return tuple(scanner.values)


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
    if not parsed.values or set(parsed.content) - _GENERIC:
        return False
    held = _scan(text[:_MAX_MAIL_CHARS], settings.day_first)
    return all(any(_same(a, k) for a in held) for k in parsed.values)
