"""A mail with all that cleaning needs of it: the half of the work that runs in any process.

Kept apart from the options and reports, so that a worker process starts without them.
"""

from __future__ import annotations

from dataclasses import dataclass

from corpus_index.dedup import Fingerprint, fingerprint
from corpus_index.sources.items import Item, Mail, RawMail, Unread
from corpus_index.sources.mail import parse_mail
from corpus_index.threads import Trace, trace

EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A mail with all that cleaning needs of it, made where the mail was parsed."""

    mail: Mail
    mark: Fingerprint
    trace: Trace


def prepare_item(item: Item) -> Prepared | Unread:
    """Parse and fingerprint one item; pure, so it runs in any process. Never raises."""
    mail = parse_mail(item) if isinstance(item, RawMail) else item
    if isinstance(mail, Unread):
        return mail
    if not mail.document.body.strip() and not mail.document.subject:
        return Unread(mail.document.source, EMPTY)
    return Prepared(mail, fingerprint(mail.document), trace(mail.document))
