"""Subjects without Re and Fw, and bodies without the text they quote."""

from __future__ import annotations

import re

_PREFIX = re.compile(r"\s*(?:(?:re|fw|fwd|aw|wg|sv|tr|antwort)\s*(?:\[\d+\]|\(\d+\))?\s*[::]\s*)+", re.IGNORECASE)
_SPACE = re.compile(r"\s+")
_STAMP = r"\d{1,2}[/-]\d{1,2}[/-]\d{2,4}[ ]+\n?\d{1,2}:\d{2}(?::\d{2})?[ ][AP]M"
# (text that every such marker holds, pattern from a line start, lines by which the pattern may begin above the text).
_MARKERS: tuple[tuple[str, re.Pattern[str], int], ...] = (
    ("-Original ", re.compile(r"[ \t>]*-{2,}[ ]?Original (?:Message|Appointment)\b"), 0),
    ("- Original ", re.compile(r"[ \t>]*-{2,}[ ]?Original Message\b"), 0),
    ("Forwarded ", re.compile(r"[ \t>]*-{3,}[ ]*Forwarded (?:by|message)\b"), 0),
    ("egin forwarded ", re.compile(r"[ \t>]*Begin forwarded message:"), 0),
    ("\n>", re.compile(r"\n>"), 0),
    (" wrote:", re.compile(r"[ \t]*On [^\n]{4,120}(?:\n[^\n]{1,80})? wrote:[ \t]*(?:\n|$)"), 1),
    ("From:", re.compile(r"(?:[ \t]*_{20,}[ \t]*\n)?[ \t]*From:[ \t][^\n]+\n[ \t]*(?:Sent|Date|To):"), 1),
    # Lotus Notes: a name, a date line, and To: indented by tabs; or "name on date".
    ("To:", re.compile(rf"[^\n]{{2,90}}(?:\n\s*|[ ]on[ ]|[ ]){_STAMP}\s*\n(?:Please respond to[^\n]*\n)?[ \t]*To:"), 5),
)


def bare_subject(subject: str) -> str:
    """The subject in lower case, without leading Re:, Fw:, Fwd: (also repeated or numbered), white space folded."""
    match = _PREFIX.match(subject)
    text = subject[match.end() :] if match else subject
    return _SPACE.sub(" ", text).strip().lower()


def is_reply(subject: str) -> bool:
    """True where the subject begins with Re:, Fw: or Fwd:."""
    return _PREFIX.match(subject) is not None


def split_quoted(body: str) -> tuple[str, str]:
    """``(new_text, quoted)`` at the first quoting marker; ``new_text + quoted == body``.

    Markers: ``-----Original Message-----``, ``--- Forwarded by``, ``>`` quoting, ``On ... wrote:``, and the Lotus Notes
    block of name, date line and ``To:``. New text below ``>`` quotes counts as quoted: nothing marks where it begins
    for sure.
    """
    cut = len(body)
    for text, pattern, above in _MARKERS:
        at = body.find(text)
        while 0 <= at < cut:
            start = _line_start(body, at)
            for _ in range(above + 1):
                if start < cut and pattern.match(body, at if text[0] == "\n" else start):
                    cut = at + 1 if text[0] == "\n" else start
                if start == 0:
                    break
                start = _line_start(body, start - 1)
            at = body.find(text, at + 1)
    if body.startswith(">"):
        cut = 0
    return body[:cut], body[cut:]


def _line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1
