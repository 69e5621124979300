"""What an answer commits to, once it has named and dropped something else: "moved from 6 to 7", "Ana, not Ida"."""

from __future__ import annotations

import re

from rewards.rewording import FLAGS

_LEAD_IN = re.compile(r"^(?:the\s)?(?:final\s)?answer(?:\sis\s?:?|:)\s?(?=\S)", FLAGS)
_FINAL = re.compile(r"^.{0,1000}\bfinal\sanswer(?:\sis\s?:?|:)\s?(?=\S)", FLAGS)
_MOVED = re.compile(
    r"\b(moved|changed|rescheduled|postponed|shifted|pushed|raised|lowered|increased|reduced)\b"
    r"([^;]{0,40}?)\bfrom\b[^;]{1,40}?\bto\b",
    FLAGS,
)
# Only what names a thing is a contrast: "not sure" is a doubt.
_CONTRAST = re.compile(r"(?<=\w)\s?[,(;]\s?(?:and\s)?not\s(?=[^,;()]{0,60}[A-Z0-9])[^,;()]{1,60}\)?\s?[.!]?$")


def claim(text: str) -> str:
    """The part of ``text`` (folded) that it stands by."""
    text = _LEAD_IN.sub("", _FINAL.sub("", text))
    return _CONTRAST.sub("", _MOVED.sub(r"\1\2to", text))
