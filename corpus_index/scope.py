"""Which mails an agent may see at all. An index view enforces it: ``SearchIndex.within(scope)``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from corpus_index.document import Document, encodable
from corpus_index.query import MAX_TEXT, Moment

_FIRST, _LAST = datetime(1700, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)


def _to_second(moment: datetime) -> datetime:
    if not _FIRST <= moment <= _LAST:
        raise ValueError(f"{moment:%Y-%m-%d} is not between 1700 and 2200; leave it out for no limit")
    return moment.replace(microsecond=0)  # the engines keep whole seconds: both sides must mean the same bound


# Compared as it stands: a folder may begin or end with a blank.
Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TEXT)]
Names = Annotated[tuple[Name, ...], Field(max_length=1000)]
Bound = Annotated[Moment, AfterValidator(_to_second)]


class MailScope(BaseModel):
    """Mails in one of ``mailboxes``, in one of ``folders``, dated ``after <= date < before`` (whole seconds, UTC).

    Names are exact; what is left empty is no limit. A mail without a date is outside every date range.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    mailboxes: Names = ()
    folders: Names = ()
    after: Bound | None = None
    before: Bound | None = None

    @model_validator(mode="after")
    def _span(self) -> MailScope:
        if self.after is not None and self.before is not None and self.after >= self.before:
            raise ValueError(f"'after' ({self.after}) must be earlier than 'before' ({self.before})")
        return self

    def allows(self, document: Document) -> bool:
        """True where the mail is inside; the search engines' filters mean exactly this."""
        if self.mailboxes and encodable(document.mailbox) not in self.mailboxes:
            return False
        if self.folders and encodable(document.folder) not in self.folders:
            return False
        if self.after is None and self.before is None:
            return True
        date = document.date
        if date is None:
            return False
        return (self.after is None or self.after <= date) and (self.before is None or date < self.before)
