"""Bytes to text: charsets, encoded words, control characters, quoted-printable leftovers, HTML."""

from __future__ import annotations

import binascii
import codecs
import quopri
import re
from email.errors import HeaderParseError
from email.header import decode_header
from functools import lru_cache
from html import unescape

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff]")
_CONTROL_BYTES = bytes([*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F])
_NOT_TEXT = dict.fromkeys((*range(1, 9), 11, *range(14, 32), 127), " ") | {
    0x00: None,
    0x0C: "\n",
    0xFEFF: None,
}
# Charsets whose bytes look like ASCII but are not.
_SEVEN_BIT_CHARSETS = ("iso-2022", "iso2022", "hz", "utf-7", "utf7")


@lru_cache(maxsize=256)
def _codec(charset: str) -> str:
    """The Python name of a declared charset, or "" where it is unknown or not a text encoding."""
    name = charset.strip().strip("\"'").lower()
    name = {"ks_c_5601-1987": "cp949", "gb2312": "gb18030", "x-unknown": "", "iso-8859-8-i": "iso-8859-8"}.get(
        name, name
    )
    try:
        b"".decode(name)
        return codecs.lookup(name).name if name else ""
    except (LookupError, ValueError, UnicodeError):
        return ""


def decode_bytes(data: bytes, charset: str = "") -> str:
    """Decode as declared, else as UTF-8, else as Windows-1252, where every byte has a meaning. Never raises."""
    if data.isascii() and not charset.lower().startswith(_SEVEN_BIT_CHARSETS):
        return data.decode("ascii")
    for name in (_codec(charset) if charset else "", "utf-8", "cp1252"):
        if name and name != "ascii":
            try:
                return data.decode(name)
            except (UnicodeError, ValueError):
                continue
    return data.decode("latin-1")


def decode_words(value: str) -> str:
    """RFC 2047 encoded words (``=?utf-8?q?...?=``) to text; a broken word stays as written."""
    if "=?" not in value:
        return value
    try:
        parts = decode_header(value)
    except (HeaderParseError, binascii.Error, ValueError, IndexError):
        return value
    return "".join(part if isinstance(part, str) else decode_bytes(part, charset or "") for part, charset in parts)


def tidy(text: str) -> str:
    """Line ends to ``\\n``; control characters to a space (NUL and byte-order marks vanish, form feeds end a line)."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii():  # bytes.translate only to count is several times faster than any search
        data = text.encode("ascii")
        if len(data.translate(None, _CONTROL_BYTES)) == len(data):
            return text
    elif not _CONTROL.search(text):
        return text
    return text.translate(_NOT_TEXT)


# What an encoder writes: "=" itself, bytes over 127, a space or tab at the end of a line, a tab, a soft line break.
_ESCAPE = re.compile(rb"=(?:3D|[89A-F][0-9A-F]|20(?=\r?\n|\Z)|09(?![0-9/])|[ \t]*\r?\n)")
_LONG_SOFT_BREAK = re.compile(rb"(?m)^(.{60,79})=\r?\n")
_TRAILING_SPACE = re.compile(rb"=20(?=\r?\n|\Z)")
_TAB = re.compile(rb"=09(?![0-9A-Za-z])")


def repair_quoted_printable(body: bytes) -> bytes:
    """Undo quoted-printable in a body that was declared plain.

    Where every ``=`` of the body starts an escape that an encoder would write, and one ends a line as only that
    encoding does, the whole body is decoded. Otherwise it is mixed, and ``=20`` may be half of ``year=2001``: only what
    cannot be text is undone, which is ``=20`` at the end of a line, a lone ``=09``, and soft breaks after lines of the
    encoder's length.
    """
    if not any(sign in body for sign in (b"=\n", b"=\r\n", b"=20", b"=09")):
        return body
    ends = _TRAILING_SPACE.search(body) or _LONG_SOFT_BREAK.search(body)
    if ends and len(_ESCAPE.findall(body)) == body.count(b"="):
        return quopri.decodestring(body)
    if ends:
        body = _TRAILING_SPACE.sub(b" ", body)
        body = _LONG_SOFT_BREAK.sub(rb"\1", body)
    return _TAB.sub(b"\t", body)


_LOOKS_HTML = re.compile(r"<(?:!doctype html|html|body|table|div|p|br)\b[^<]*>", re.IGNORECASE)
_CLOSED = re.compile(r"</(?:html|body|table|div|p|td|font|a|b)\s*>", re.IGNORECASE)
_HIDDEN = re.compile(
    r"<!--.*?-->|<(script|style|head|title|noscript|template)\b[^>]*>.*?</\1\s*>", re.IGNORECASE | re.DOTALL
)
_BREAK = re.compile(
    r"</?(?:address|article|aside|blockquote|br|center|dd|div|dl|dt|fieldset|footer|form|h[1-6]|header|hr|li|main|nav|ol|option|p|"
    r"pre|section|table|tr|ul)\b[^<>]*>",
    re.IGNORECASE,
)
_CELL = re.compile(r"<t[dh]\b[^<>]*>", re.IGNORECASE)
# A tag starts with a letter, "/", "!" or "?": "a < b" is text.
_TAG = re.compile(r"<[A-Za-z/!?][^<>]*>")
_SPACE = re.compile(r"[ \t\n\r\f\v\xa0]+")
_EMPTY_LINES = re.compile(r"\n{3,}")


def looks_like_html(body: str) -> bool:
    """True where a plain body is really markup: an opening and a closing tag of the usual page elements."""
    return "</" in body and bool(_CLOSED.search(body)) and bool(_LOOKS_HTML.search(body))


def html_to_text(markup: str) -> str:
    """The visible text of an HTML page: a line a block element, table cells and inline runs joined by spaces.

    Substitutions instead of a parser tree: a tree costs ten times as much, and mail markup is too broken to gain from
    one. Text that only looks like a tag start (``a < b``) stays.
    """
    text = _SPACE.sub(" ", markup)  # a line end of the source is a space on the page
    text = _BREAK.sub("\n", _HIDDEN.sub(" ", text))
    text = unescape(_TAG.sub("", _CELL.sub(" ", text)))
    lines = (_SPACE.sub(" ", line).strip() for line in text.split("\n"))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip()
