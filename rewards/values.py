"""Typed values in a text: money, percent, numbers with units, dates, weekdays, times, phones, addresses, codes.

Text is untrusted: callers cap its length, and every pattern has bounded repeats.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


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


@dataclass(frozen=True, slots=True)
class Labelled:
    """A number that its label makes another's: "suite 220" is no "shelf 220"."""

    label: str
    number: int


@dataclass(frozen=True, slots=True)
class Rate:
    """What an amount before it is for: "per MMBtu", "a day"."""

    unit: str


Value = Money | Percent | Number | Date | Weekday | Time | Phone | Extension | Email | Code | Labelled | Rate

WHEN = (Date, Weekday, Time)  # one appointment: naming the day beside the hour is no second candidate

UNITS: dict[str, tuple[str, Decimal]] = {
    name: (dimension, Decimal(factor))
    for dimension, table in {
        "time": {"second seconds sec secs": "1", "minute minutes min mins": "60", "hour hours hr hrs": "3600",
                 "day days": "86400", "week weeks": "604800"},
        "months": {"month months": "1", "year years yr yrs": "12"},
        "length": {"mm": "0.001", "cm": "0.01", "metre metres meter meters": "1", "km": "1000",
                   "inch inches": "0.0254", "foot feet ft": "0.3048", "yard yards yds": "0.9144",
                   "mile miles mi": "1609.344"},
        "mass": {"kg kilo kilos": "1", "lb lbs": "0.45359237", "ton tons": "907.18474", "tonne tonnes": "1000"},
        "power": {"kw kilowatts kilowatt": "1", "mw megawatts megawatt": "1000", "gw gigawatts gigawatt": "1000000"},
        "energy": {"kwh": "1", "mwh": "1000", "gwh": "1000000"},
        "heat": {"mmbtu mmbtus": "1", "bcf": "1037000"},
        "volume": {"barrel barrels bbl bbls": "42", "gallon gallons gal": "1"},
        "pressure": {"psi": "1", "bar": "14.503774"},
        "data": {"kb": "1", "mb": "1024", "gb": "1048576"},
        "person": {"person persons people": "1"},
    }.items()
    for names, factor in table.items()
    for name in names.split()
}  # fmt: skip


_BEHIND = {"eastern": 0, "central": 60, "mountain": 120, "pacific": 180}
"""Minutes behind Eastern time, summer and winter alike."""


def same_value(a: Value, k: Value) -> bool:
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
            shift = 0
            if a.zone and k.zone and a.zone != k.zone:
                if a.zone not in _BEHIND or k.zone not in _BEHIND:
                    return False
                shift = _BEHIND[a.zone] - _BEHIND[k.zone]
            turn = 720 if a.loose or k.loose else 1440  # "2:00" may be either half of the day
            ends = k.end < 0 or (a.end >= 0 and (a.end + shift - k.end) % turn == 0)
            return (a.start + shift - k.start) % turn == 0 and ends
        case Phone(), Phone():
            one, two = a.digits.removeprefix("1"), k.digits.removeprefix("1")
            return one == two or a.digits == k.digits or (min(len(one), len(two)) == 7 and one[-7:] == two[-7:])
        case Rate(), Rate():
            return a.unit == k.unit or (a.unit in UNITS and k.unit in UNITS and UNITS[a.unit] == UNITS[k.unit])
        case (Extension(), Phone()) | (Phone(), Extension()):
            return len(a.digits) >= 4 and len(k.digits) >= 4 and (
                a.digits.endswith(k.digits) or k.digits.endswith(a.digits)
            )  # fmt: skip
        case _:
            return a == k


def same_bare_value(a: Value, k: Value) -> bool:
    """A single value on both sides where one names its kind and the other is a plain number."""
    match a, k:
        case (Number(unit=""), Money() | Percent()) | (Money() | Percent(), Number(unit="")):
            return a.amount == k.amount
        case Number(unit=""), Extension():
            return str(a.amount.to_integral_value()) == k.digits.lstrip("0") or f"{a.amount:f}" == k.digits
        case (Number(unit="hr" | "hrs" | "hour" | "hours"), Time(end=-1)):  # "1530 hrs"
            return a.amount >= 100 and (a.amount // 100 * 60 + a.amount % 100 - k.start) % 1440 == 0 and not k.loose
        case (Number(unit="", amount=amount), Labelled(number=number)) | (
            Labelled(number=number),
            Number(unit="", amount=amount),
        ):
            return amount == number
        case (Date(), Number(unit="")):
            return a.year > 0 and k.amount == a.year
        case (Number(unit=""), Phone()) | (Phone(), Number(unit="")):
            digits = a.digits if isinstance(a, Phone) else k.digits if isinstance(k, Phone) else ""
            number = a.amount if isinstance(a, Number) else k.amount if isinstance(k, Number) else Decimal(-1)
            return f"{number:f}" == digits
        case _:
            return False
