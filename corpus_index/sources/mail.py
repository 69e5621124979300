"""One raw message to one Mail: our own short path for plain text, the ``email`` package for MIME structure."""

from __future__ import annotations

import base64
import hashlib
import quopri
import re
from email import message_from_bytes
from email.message import Message
from typing import cast

from corpus_index.document import Document
from corpus_index.sources.dates import enron_date
from corpus_index.sources.items import UNREADABLE, Mail, RawMail, Unread
from corpus_index.sources.people import parse_people, rebuild_address
from corpus_index.sources.text import (
    decode_bytes,
    decode_words,
    html_to_text,
    looks_like_html,
    repair_quoted_printable,
    tidy,
)

_FIRST_LINE = re.compile(rb"\s*(?:>?From (?![ \t]*:)[^\n]*\n\s*)?[A-Za-z][\w-]*[ \t]*:")
_MBOX_LINE = re.compile(rb">?From (?![ \t]*:)")
_KNOWN_HEADERS = frozenset(
    (
        "from",
        "to",
        "subject",
        "date",
        "message-id",
        "received",
        "return-path",
        "mime-version",
        "content-type",
        "cc",
        "sender",
    )
)
_MESSAGE_ID = re.compile(r"<([^<>\s]+)>")
_CHARSET = re.compile(r"charset\s*=\s*\"?([^\s\";]+)", re.IGNORECASE)
_PLAIN_ENCODINGS = frozenset(("", "7bit", "8bit", "binary", "quoted-printable"))

_BRACKETED = re.compile(r"<<(?:File: ?)?([^<>\n]{1,120}?\.[A-Za-z][A-Za-z0-9]{1,4})>>", re.IGNORECASE)
_DASHED = re.compile(r"^[ \t]*- ([^\n]{1,120}?\.[A-Za-z][A-Za-z0-9]{1,4})[ \t]*$", re.MULTILINE)
_SEE_FILE = re.compile(r"\(See attached file: ([^()\n]{1,120}?\.[A-Za-z][A-Za-z0-9]{1,4})\)", re.IGNORECASE)
# Names with these ends are hosts or prose, not files.
_NOT_FILES = frozenset(("com", "org", "net", "edu", "gov"))
# The export's ``- name.ext`` lines stand at the very end; elsewhere they are list items.
_TAIL_CHARS = 800


def document_id(key: str) -> str:
    """8 lower-case characters ``[a-z2-7]``: 40 bits of a hash of ``key``, the same in every build."""
    return (
        base64.b32encode(hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=5).digest())
        .decode("ascii")
        .lower()
    )


def parse_mail(raw: RawMail) -> Mail | Unread:
    """Parse one message; never raises. Bytes that hold no mail header come back as Unread ``unreadable``."""
    try:
        return _parse(raw)
    # The email package raises many kinds on hostile input; one bad message must never stop a build.
    except Exception:
        return Unread(raw.source, UNREADABLE)


def _parse(raw: RawMail) -> Mail | Unread:
    data = raw.data
    if not _FIRST_LINE.match(data):
        return Unread(raw.source, UNREADABLE)
    if _MBOX_LINE.match(data):
        data = data[data.find(b"\n") + 1 :]
    if b"\n" not in data and b"\r" in data:
        data = data.replace(b"\r", b"\n")
    data = data.lstrip(b"\r\n \t")
    head, body_bytes = split_head(data)
    headers = parse_headers(head)
    if not _KNOWN_HEADERS.intersection(headers):
        return Unread(raw.source, UNREADABLE)
    body, attachments = _content(headers, data, body_bytes)

    message_id = _one_id(headers.get("message-id", ""))
    sender, sender_name = _sender(headers)
    recipients, recipient_names = _recipients(headers)
    return Mail(
        Document(
            id=document_id(message_id or raw.source),
            subject=tidy(decode_words(headers.get("subject", ""))).replace("\n", " ").strip(),
            body=body,
            sender=sender,
            sender_name=sender_name,
            recipients=recipients,
            recipient_names=recipient_names,
            date=enron_date(headers.get("date", ""), headers.get("x-filename", "")),
            mailbox=raw.mailbox,
            folder=raw.folder,
            source=raw.source,
            message_id=message_id,
            attachments=attachments,
        ),
        _references(headers, message_id),
    )


def split_head(data: bytes) -> tuple[bytes, bytes]:
    """Header block and body, at the first empty line under either line end; no empty line means no body."""
    unix, dos = data.find(b"\n\n"), data.find(b"\n\r\n")
    if dos >= 0 and (unix < 0 or dos < unix):
        return data[:dos].removesuffix(b"\r"), data[dos + 3 :]
    if unix >= 0:
        return data[:unix], data[unix + 2 :]
    return data, b""


def parse_headers(head: bytes) -> dict[str, str]:
    """Header names in lower case to unfolded values. The first of a repeated header counts; To and Cc are joined."""
    headers: dict[str, str] = {}
    key = ""
    for line in tidy(decode_bytes(head)).split("\n"):
        name, colon, value = line.partition(":")
        name = name.rstrip(" \t")
        # Any other line continues the header before it, indented or not: the export broke some subjects over lines.
        if not colon or not name.replace("-", "").isalnum() or line[0] in " \t":
            if key and (more := line.strip()):
                headers[key] = f"{headers[key]} {more}" if headers[key] else more
            continue
        found = name.lower()
        value = value.strip()
        if found not in headers:
            key = found
            headers[key] = value
        elif found in ("to", "cc"):
            key = found
            headers[key] = f"{headers[key]}, {value}"
        else:
            key = ""
    return headers


def _one_id(value: str) -> str:
    match = _MESSAGE_ID.search(value)
    return match[1] if match else value.strip()


def _references(headers: dict[str, str], own: str) -> tuple[str, ...]:
    if "references" not in headers and "in-reply-to" not in headers:
        return ()
    ids = _MESSAGE_ID.findall(headers.get("references", "")) + _MESSAGE_ID.findall(headers.get("in-reply-to", ""))
    return tuple(dict.fromkeys(item for item in ids if item != own))


def _sender(headers: dict[str, str]) -> tuple[str, str]:
    """From, else Sender, else X-From. The name comes from X-From where From holds an address only."""
    raw = headers.get("from", "") or headers.get("sender", "")
    name, address = next((pair for pair in parse_people(raw) if any(pair)), ("", ""))
    full_name, other = next(iter(parse_people(headers.get("x-from", ""))), ("", ""))
    # The export's From may hold a scrap of the name ("houston <.ward@enron.com>"); X-From has it whole.
    name = full_name or name
    return rebuild_address(address or other, raw.lower(), name), name


def _recipients(headers: dict[str, str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """To and Cc, with names of X-To and X-cc. Bcc is a copy of Cc in the export, and secret elsewhere: left out."""
    addresses: dict[str, None] = {}
    names: dict[str, None] = {}
    for field, extra in (("to", "x-to"), ("cc", "x-cc")):
        raw = headers.get(field, "")
        people = parse_people(raw)
        known = parse_people(headers.get(extra, ""))
        if not any(address for _, address in people):
            people = known
        elif ".." in raw and len(known) == len(people):
            raws = raw.split(",")
            people = [
                (name, rebuild_address(address, spelt.lower(), full or name))
                for (name, address), (full, _), spelt in zip(people, known, raws, strict=False)
            ]
        for name, _ in people + known:
            if name:
                names[name] = None
        for _, address in people:
            if address:
                addresses[address] = None
    return tuple(addresses), tuple(names)


def _content(headers: dict[str, str], data: bytes, body: bytes) -> tuple[str, tuple[str, ...]]:
    kind = headers.get("content-type", "")
    encoding = headers.get("content-transfer-encoding", "").partition(";")[0].strip().lower()
    if encoding in _PLAIN_ENCODINGS and (not kind or kind[:10].lower() == "text/plain"):
        if encoding == "quoted-printable":
            body = quopri.decodestring(body)
        elif encoding != "8bit":
            body = repair_quoted_printable(body)
        found = _CHARSET.search(kind) if kind else None
        text = tidy(decode_bytes(body, found[1] if found else ""))
        if "</" in text and looks_like_html(text):
            text = html_to_text(text)
        return text, _mentioned(text)
    return _mime_content(message_from_bytes(data))


def _mentioned(text: str) -> tuple[str, ...]:
    """Names of attachments that were stripped, but that the text still mentions."""
    names: list[str] = []
    if "<<" in text:
        names += _BRACKETED.findall(text)
    tail = text[-_TAIL_CHARS:]
    if "- " in tail:
        names += _DASHED.findall(tail)
    if "attached file: " in text:
        names += _SEE_FILE.findall(text)
    if not names:
        return ()
    return tuple(dict.fromkeys(name.strip() for name in names if name.rpartition(".")[2].lower() not in _NOT_FILES))


def _mime_content(message: Message) -> tuple[str, tuple[str, ...]]:
    texts: list[str] = []
    names: list[str] = []
    _collect(message, texts, names, depth=0)
    text = "\n\n".join(piece for piece in texts if piece.strip())
    return text, tuple(dict.fromkeys(names + list(_mentioned(text))))


def _collect(part: Message, texts: list[str], names: list[str], depth: int) -> None:
    """Visible text and attachment names of one part and its children, in order. 20 levels are enough for any mail."""
    if depth > 20:
        return
    kind = part.get_content_type()
    name = _file_name(part)
    if kind == "message/rfc822" and part.is_multipart():
        inner = _inner_message(part)
        if name:
            names.append(name)
        texts.append(_forwarded_head(inner))
        _collect(inner, texts, names, depth + 1)
        return
    if part.is_multipart():
        children = cast("list[Message]", part.get_payload())
        if kind == "multipart/alternative":
            _collect_alternative(children, texts, names, depth)
            return
        for child in children:
            _collect(child, texts, names, depth + 1)
        return
    attached = str(part.get("Content-Disposition", "")).strip().lower().startswith("attachment")
    if name:
        names.append(name)
    # "text" alone, or no slash at all, is what some mailers write for plain text.
    if not attached and not (name and kind != "text/plain") and kind.startswith("text/"):
        texts.append(_part_text(part, kind))


def _collect_alternative(children: list[Message], texts: list[str], names: list[str], depth: int) -> None:
    """The first alternative with visible text, plain before the rest; files of the others keep their names."""
    chosen: list[str] = []
    for child in sorted(children, key=lambda item: item.get_content_type() != "text/plain"):
        found: list[str] = []
        _collect(child, found, names, depth + 1)
        if not chosen and any(piece.strip() for piece in found):
            chosen = found
    texts += chosen


def _part_text(part: Message, kind: str) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else str(part.get_payload()).encode("utf-8", "surrogateescape")
    text = tidy(decode_bytes(data, _declared_charset(part)))
    return html_to_text(text) if kind == "text/html" or looks_like_html(text) else text


def _declared_charset(part: Message) -> str:
    try:
        return part.get_content_charset("") or ""
    except (LookupError, ValueError, TypeError, AttributeError):
        return ""


def _file_name(part: Message) -> str:
    try:
        name = part.get_filename()
    except (LookupError, ValueError, TypeError, AttributeError):
        name = None
    return " ".join(tidy(decode_words(name)).split()) if name else ""


def _inner_message(part: Message) -> Message:
    """The message inside a message/rfc822 part, also where a mailer packed it as base64 against the rules."""
    inner = cast("list[Message]", part.get_payload())[0]
    packed = inner.get_payload()
    if str(part.get("Content-Transfer-Encoding", "")).strip().lower() == "base64" and isinstance(packed, str):
        return message_from_bytes(base64.b64decode(packed))
    return inner


def _forwarded_head(inner: Message) -> str:
    lines = [
        f"{field}: {tidy(decode_words(str(inner[field])))}"
        for field in ("From", "Date", "To", "Subject")
        if inner[field]
    ]
    return "\n".join(["-----Original Message-----", *lines])
