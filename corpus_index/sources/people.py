"""Addresses and names out of To, From, X-To and X-From headers."""

from __future__ import annotations

import re
from functools import lru_cache

from corpus_index.sources.text import decode_words

_MAILBOX = re.compile(
    r"""\s*(?:
        (?P<name>(?:"(?:[^"\\]|\\.)*"|[^<>",;])*?)\s*<(?P<angle>[^<>]*)>(?:\s*@[\w.-]+)?   # Name <address>
      | "(?P<quoted>(?:[^"\\]|\\.)*)"(?P<after>[^,;<]*)                                    # "Name"@host or "Name"
      | (?P<plain>[^,;<>"]+)                                                               # address, or a bare name
    )\s*(?:[,;]|$)""",
    re.VERBOSE,
)
_COMMENT = re.compile(r"\(([^()]*)\)")
_GROUP = re.compile(r"(?:^|,)\s*[^<>@,;:\"]*:([^:;]*);")
_ADDRESS = re.compile(r"[^\s@<>\"',;()]+@[^\s@<>\"',;()]+")
# "Robert Billbrough, Sr." is not turned round.
_SUFFIXES = frozenset(("jr", "sr", "ii", "iii", "iv", "md", "phd", "esq", "cpa", "inc", "llc", "llp", "l.l.p", "l.l.c"))
_CACHED_CHARS = 400


@lru_cache(maxsize=65536)
def clean_address(raw: str) -> str:
    """One address in lower case, without quotes, brackets or empty name parts; "" where there is no ``local@host``.

    ``k..allen@enron.com`` becomes ``k.allen@enron.com`` and ``"'ann@x.org'"`` becomes ``ann@x.org``; a quote inside a
    name (``p..o'neil@``) stays.
    """
    text = "".join((_COMMENT.sub("", raw) if "(" in raw else raw).split()).strip("\"'<>[](),;.").lower()
    if text.startswith("mailto:"):
        text = text[7:]
    local, at, host = text.rpartition("@")
    local = local.replace('"', "").replace("<", "").replace(">", "").strip("'.:")
    host = host.strip("'\".")
    if "@" in local:  # "who@first.host@gateway": the first one is where the mail went
        local, _, host = local.partition("@")
    while ".." in local:
        local = local.replace("..", ".")
    return f"{local}@{host}" if at and local and host else ""


@lru_cache(maxsize=65536)
def clean_name(raw: str) -> str:
    """A person's name as one says it: no quotes, no Exchange or Notes path, ``Allen, Phillip K.`` turned round."""
    text = decode_words(raw) if "=?" in raw else raw
    text = text.replace('\\"', "").replace('"', "").strip().strip("'")
    if "<" in text:
        text = text.partition("<")[0].strip()
    if text.upper().startswith("/O="):
        return ""
    if "/" in text or "@" in text:
        if _ADDRESS.fullmatch(text):
            return ""
        text = text.partition("/")[0].partition("@")[0]  # Ina Rangel/HOU/ECT@ECT
    text = " ".join(text.split()).strip(" '\"")
    last, comma, first = text.partition(",")
    if comma and "," not in first and first.strip() and first.strip(" .").lower() not in _SUFFIXES:
        text = f"{first.strip()} {last.strip()}"
    return text


def parse_people(value: str) -> list[tuple[str, str]]:
    """``(name, address)`` pairs of an address list, in order; either half may be "". Never raises.

    Reads RFC 5322 lists as well as the export's ``Last, First </O=ENRON/...CN=X>`` and ``First Last/HOU/ECT@ECT``.
    """
    if len(value) <= _CACHED_CHARS:
        return list(_parse_short(value))
    return _parse(value)


@lru_cache(maxsize=16384)
def _parse_short(value: str) -> tuple[tuple[str, str], ...]:
    """The same few people write most of a mailbox, so short lists are remembered."""
    return tuple(_parse(value))


def _parse(value: str) -> list[tuple[str, str]]:
    if not value:
        return []
    if '"' not in value and "<" not in value and ";" not in value and "(" not in value and "/" not in value:
        return [_bare(part) for part in value.split(",") if part.strip()]
    value = " ".join(value.split())
    if ":" in value and ";" in value:
        value = _GROUP.sub(r",\1,", value)
    if "</" in value or "<IMCEA" in value or "<??S" in value:
        return _exchange_people(value)
    people: list[tuple[str, str]] = []
    for match in _MAILBOX.finditer(value):
        angle, quoted, plain = match["angle"], match["quoted"], match["plain"]
        if angle is not None:
            people.append((clean_name(match["name"]), clean_address(angle) or clean_address(match["name"])))
        elif quoted is not None:
            inner = f"{quoted}{match['after'].strip()}" if "@" in match["after"] else quoted
            people.append(_bare(inner))
        elif plain is not None and plain.strip():
            people.append(_bare(plain))
    return people


_EXCHANGE = re.compile(r"([^<>]*)<([^>]*)>(?:@\w+)?\s*(?:<[^>]*>)?")


def _exchange_people(value: str) -> list[tuple[str, str]]:
    """``Last, First <dn-or-address>, Last, First <...>``: here a comma inside a name is not a separator."""
    people: list[tuple[str, str]] = []
    end = 0
    for match in _EXCHANGE.finditer(value):
        name, target = match[1].strip(" ,;"), match[2]
        address = "" if target.startswith(("/", "??S", "IMCEA")) else clean_address(target)
        people.append((clean_name(name), address))
        end = match.end()
    rest = value[end:].strip(" ,;")
    return people + ([_bare(rest)] if rest and "<" not in rest else [])


@lru_cache(maxsize=65536)
def _bare(text: str) -> tuple[str, str]:
    text = text.strip()
    comment = ""
    if "(" in text and (found := _COMMENT.search(text)):
        comment, text = found[1], _COMMENT.sub("", text).strip()
    compact = text.replace(" @ ", "@")
    host = compact.rpartition("@")[2]
    if "@" in compact and "." in host and "/" not in compact and " " not in compact.strip("'\""):
        return clean_name(comment), clean_address(compact)
    if "@" in compact and (found := _ADDRESS.search(compact)) and "." in found[0].rpartition("@")[2]:
        return clean_name(comment or compact.replace(found[0], "")), clean_address(found[0])
    return clean_name(comment or text), ""


def rebuild_address(address: str, raw: str, name: str) -> str:
    """``k..allen@enron.com`` of ``Phillip K. Allen`` is ``phillip.allen@enron.com``: the export lost the first name.

    Only where the raw local part has an empty part and the name ends in the same last name.
    """
    if ".." not in raw or not name or not address:
        return address
    words = name.lower().replace(".", " ").split()
    local, _, host = address.partition("@")
    last = local.rpartition(".")[2]
    if len(words) >= 2 and words[-1] == last and words[0].isalpha() and len(words[0]) > 1:
        return f"{words[0]}.{last}@{host}"
    return address
