"""Reads a text into typed values. Text is untrusted: callers cap its length, and all patterns have bounded repeats."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from rewards.rewording import FLAGS, MONTH_NAMES, NUMBER_WORDS
from rewards.values import (
    UNITS,
    Code,
    Date,
    Email,
    Extension,
    Labelled,
    Money,
    Number,
    Percent,
    Phone,
    Rate,
    Time,
    Value,
    Weekday,
)
from rewards.vocabulary import ABBREVIATIONS, GENERIC, STOP, vocabulary

_CURRENCY = {
    "$": "USD", "us$": "USD", "usd": "USD", "dollar": "USD", "dollars": "USD", "buck": "USD", "bucks": "USD",
    "c$": "CAD", "cad": "CAD", "€": "EUR", "eur": "EUR", "euro": "EUR", "euros": "EUR", "£": "GBP", "gbp": "GBP",
    "pound": "GBP", "pounds": "GBP", "¥": "JPY", "jpy": "JPY", "yen": "JPY",
}  # fmt: skip
_SCALE = {
    "k": 10**3, "thousand": 10**3, "m": 10**6, "mm": 10**6, "mil": 10**6, "million": 10**6,
    "b": 10**9, "bn": 10**9, "billion": 10**9,
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
_ZONES = {"c": "central", "e": "eastern", "p": "pacific", "m": "mountain", "g": "utc", "u": "utc"}

_NUM = r"(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,15})(?:\.\d{1,9})?(?!\d)|\.\d{1,9}(?!\d)"
_SIGN = r"(?<![\w.,$])((?:(?<![^\s(])-)?)"
_MONTH = rf"({MONTH_NAMES})\b\.?"
_NTH = r"(\d{1,2})(?:st|nd|rd|th)?(?![\w:])"
_YEAR = r"(?:,?\s{0,2}(?:of\s)?((?:19|20)\d\d)(?!\d))?"
_ANOTHER = r"(?:\d{1,2})(?:st|nd|rd|th)?(?![\w:])(?!\s?[ap]\.?m)"
_MORE = rf"((?:\s{{0,2}}(?:,\s?and|,|and|&|-|to|through|until)\s{{0,2}}{_ANOTHER}){{0,6}})"
_AMPM = r"([ap])\.?\s?m\b\.?"
_CLOCK = rf"(\d{{1,2}})(?::(\d\d))?(?!\d)\s{{0,2}}(?:{_AMPM})?"
_ZONE = r"(?:\s?\(?([cepm][sd]?t|gmt|utc|(?:eastern|central|mountain|pacific)(?:\stime)?)\b\)?)?"

_EMAIL = re.compile(r"[\w.+'-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}", FLAGS)
_ISO = re.compile(r"(?<![\w-])((?:19|20)\d\d)[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)", FLAGS)
_SLASHED = re.compile(r"(?<![\w/.-])(\d{1,2})([/.-])(\d{1,2})(?:\2(\d{4}|\d\d))?(?![\w/-])(?!\.\d)", FLAGS)
_MONTH_DAY = re.compile(rf"\b{_MONTH}\s{{0,2}}(?:the\s)?{_NTH}{_MORE}{_YEAR}", FLAGS)
_DAY_MONTH = re.compile(rf"(?<![\w:.$]){_NTH}\s?-?(?:of\s)?{_MONTH}-?{_YEAR}", FLAGS)
_DAYS_MONTH = re.compile(
    rf"(?<![\w:.$/-]){_NTH}\s?(-|to|through|until|and|&)\s?{_NTH}\s(?:of\s)?{_MONTH}{_YEAR}", FLAGS
)
_MONTH_SLASH_YEAR = re.compile(r"(?<![\w/.-])(\d{1,2})/((?:19|20)\d\d)(?![\w/-])", FLAGS)
_MORE_DAY = re.compile(r"(-|to|through|until|and|&|,)\s{0,2}(\d{1,2})", FLAGS)
_MONTH_YEAR = re.compile(rf"\b{_MONTH},?\s{{0,2}}(?:of\s)?((?:19|20)\d\d)(?!\d)", FLAGS)
_EXTENSION = re.compile(r"(?<!\w)(?:x|ext\b\.?|extension\b)\s?(\d{2,6})(?!\w)", FLAGS)
_PHONE = re.compile(
    r"(?<![\w.,$-])(?:\+?\d{1,3}[\s.-])?(?:\(\d{3}\)|\d{3})[\s./-]{0,2}\d{3}[\s.-]?\d{4}(?![\w,])"
    r"|(?<![\w.,$-])\d{3}[-.]\d{4}(?![\w,])"
    r"|(?<![\w.,$-])\+?\d{1,3}(?:[\s.-]\d{1,4}){3,8}(?![\w,])",
    FLAGS,
)
_TIMES = re.compile(rf"(?<![\w:.$]){_CLOCK}{_ZONE}\s?(?:-|to\b|until\b|till\b)\s?{_CLOCK}{_ZONE}(?!\w)", FLAGS)
_TIME = re.compile(rf"(?<![\w:.$]){_CLOCK}\s?(?:o'?clock\b)?{_ZONE}(?!\w)", FLAGS)
_OCLOCK = re.compile(r"(?<![\w:.])(\d{1,2})\s?o'?clock\b", FLAGS)
_CENTS = re.compile(rf"{_SIGN}({_NUM})\s?(?:¢|cents?\b)", FLAGS)
_LABEL = (
    r"(building|bldg|shelf|suite|ste|floor|slide|page|box|unit|gate|platform|level|option|phase|section|table|pier)"
)
_LABELLED = re.compile(
    rf"\b{_LABEL}\b\.?\s(?:#|no\.?\s)?(\d{{1,4}})(?![\w.,:-]?\d)(?!\w)"
    rf"|(?<![\w.])(\d{{1,3}})(?:st|nd|rd|th)\s{_LABEL}\b",
    FLAGS,
)
_RATE = re.compile(r"(?<=\|)\s?(?:(?:per|an?|each|every)\s|/\s?)([a-z]{2,9})\b", FLAGS)
_PER = frozenset(vocabulary("unit share head person day week month year hour minute quarter mmbtu mwh kwh"))
_NOON = re.compile(r"\b(?:12\s)?(noon|midday|midnight)\b", FLAGS)
_SCALES = r"(?:\s?(k|thousand|mm|mil|million|m|bn|billion|b)\b)?"
_CURRENCY_WORD = r"(usd|dollars?|bucks?|cad|eur|euros?|gbp|pounds?|jpy|yen)\b"
_MONEY = re.compile(
    rf"(-?)(?<![\w.])(us\$|c\$|[$€£¥]|usd|cad|eur|gbp|jpy)\s?(-?)({_NUM}){_SCALES}(?:\s?{_CURRENCY_WORD})?"
    rf"|{_SIGN}({_NUM}){_SCALES}\s?{_CURRENCY_WORD}",
    FLAGS,
)
_PERCENT = re.compile(rf"{_SIGN}({_NUM})\s?(?:%|percent\b|per\scent\b|pct\b)", FLAGS)
_ORDINAL = re.compile(r"(?<![\w.])(\d{1,6})(?:st|nd|rd|th)\b", FLAGS)
_CODE = re.compile(
    r"(?<![\w.])(?:(?-i:[A-Z]{1,4})[\s-]\d{1,5}[a-z]?\d{0,3}|\d{1,3}\s(?-i:[A-Z])\d{1,3}|\d{1,4}-(?-i:[A-Z])\b"
    r"|[a-z]{1,8}-?\d{1,8}(?:-?[a-z]{1,3}\d{0,4})?|\d{1,6}[a-z]{1,3}\d{1,5}|\d{1,5}-?[a-z](?<![km])"
    r"|\d{1,6}(?:-\d{1,6}){1,3})(?![\w%])",
    FLAGS,
)
_SPACED_CODE = re.compile(r"(?<![\w.])([a-z]{2,3})\s(\d{2,5})(?![\w.,:%])", re.ASCII)
_NUMBER = re.compile(rf"{_SIGN}({_NUM})(?:\s?(k|mm|thousand|million|bn|billion)\b)?(?:[\s-]?([a-z]{{2,9}})\b)?", FLAGS)
_WEEKDAY = re.compile(
    r"\b(monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?\b"
    r"|\b(?-i:(Mon|Tues|Tue|Wed|Thurs|Thur|Thu|Fri|Sat|Sun))\b\.?",
    FLAGS,
)
_NUMBER_WORD = re.compile(r"\b(" + "|".join(NUMBER_WORDS) + r")\b(?:[\s-]([a-z]{2,9})\b)?", FLAGS)


def _amount(digits: str, scale: str | None = None, sign: str = "") -> Decimal:
    amount = Decimal(digits.replace(",", "")) * _SCALE.get((scale or "").lower(), 1)
    return (-amount if sign else amount).normalize()


def _date(year: str | int | None, month: int, day: int) -> Date | None:
    number = int(year or 0)
    if number and number < 100:  # two digits: mail archives start in the 1970s
        number += 2000 if number < 70 else 1900
    return Date(number, month, day) if 1 <= month <= 12 and 0 <= day <= 31 else None


def _days(first: int, more: str) -> list[int]:
    """``first`` and those of ``more``, "-9" or ", 8 and 9"; a range names each of its days."""
    days = [first]
    for link, number in _MORE_DAY.findall(more):
        last = int(number)
        ranged = link.lower() in ("-", "to", "through", "until") and days[-1] < last <= 31
        days += range(days[-1] + 1, last + 1) if ranged else [last]
    return days


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
        for m in self._take(_CENTS):
            self._keep(m, Money((_amount(m[2], None, m[1]) / 100).normalize(), "USD"))
        for m in self._take(_PERCENT):
            self._keep(m, Percent(_amount(m[2], None, m[1])))
        for m in self._take(_LABELLED):
            label = (m[1] or m[4]).lower()
            self._keep(m, Labelled(ABBREVIATIONS.get(label, label), int(m[2] or m[3])))
        for m in self._take(_ORDINAL):
            self._keep(m, Number(Decimal(m[1])))
        for m in self._take(_NUMBER):  # numbers with a known unit, before "5mw" could pass for a code
            if m[4] and m[4].lower() in UNITS and not m[3]:
                self._keep(m, Number(_amount(m[2], None, m[1]), m[4].lower()))
        for m in self._take(_CODE):
            self._keep(m, Code(re.sub(r"[\s-]", "", m[0]).lower()))
        for m in self._take(_SPACED_CODE):
            if m[1] not in STOP and m[1] not in GENERIC:
                self._keep(m, Code(m[1] + m[2]))
        for m in self._take(_NUMBER):
            unit = (m[4] or "").lower()
            self._keep(m, Number(_amount(m[2], m[3], m[1]), unit if unit in UNITS else ""))
            if unit and unit not in UNITS:  # an ordinary word after the number: give it back
                self.rest = f"{self.rest[: m.start(4)]}{m[4]}{self.rest[m.end(4) :]}"
        self._words()
        for m in self._take(_RATE):
            if m[1].lower() in _PER or m[1].lower() in UNITS:
                self._keep(m, Rate(m[1].lower()))

    def _dates(self) -> None:
        for m in self._take(_ISO):
            if date := _date(m[1], int(m[2]), int(m[3])):
                self._keep(m, date)
        for m in self._take(_MONTH_DAY):
            dates = [_date(m[4], _MONTHS[m[1].lower()], day) for day in _days(int(m[2]), m[3] or "")]
            if all(dates):
                self._keep(m, *(date for date in dates if date))
        for m in self._take(_DAYS_MONTH):
            dates = [_date(m[5], _MONTHS[m[4].lower()], day) for day in _days(int(m[1]), f"{m[2]}{m[3]}")]
            if all(dates):
                self._keep(m, *(date for date in dates if date))
        for m in self._take(_DAY_MONTH):
            if date := _date(m[3], _MONTHS[m[2].lower()], int(m[1])):
                self._keep(m, date)
        for m in self._take(_MONTH_YEAR):
            if date := _date(m[2], _MONTHS[m[1].lower()], 0):
                self._keep(m, date)
        for m in self._take(_MONTH_SLASH_YEAR):
            if date := _date(m[2], int(m[1]), 0):
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
            if m[1].lower() == "one" and unit not in UNITS and self.rest.strip(" .|").lower() != "one":
                continue  # "one of them" counts nothing
            self._keep(m, Number(Decimal(NUMBER_WORDS[m[1].lower()]), unit if unit in UNITS else ""))
            if unit and unit not in UNITS:
                self.rest = f"{self.rest[: m.start(2)]}{m[2]}{self.rest[m.end(2) :]}"
        month = self.rest.strip(" .,|").lower()
        if month in _MONTHS and not any(isinstance(value, Date) for value in self.values):
            self.values.append(Date(0, _MONTHS[month], 0))
            self.rest = ""


def scan(text: str, day_first: bool) -> tuple[tuple[Value, ...], str]:
    """(the values in ``text``, which is folded already; the text with their places blanked by "|")."""
    scanner = _Scanner(text, day_first)
    scanner.run()
    return tuple(scanner.values), scanner.rest
