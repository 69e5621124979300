"""From parsed mail to the mail worth indexing: duplicates out, threads in, and a report of what was dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from sys import intern
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from corpus_index.dedup import NearDuplicates, raw_key
from corpus_index.document import Document
from corpus_index.prepared import Prepared, prepare_item
from corpus_index.sources.items import DEFAULT_MAX_BYTES, Item, Mail, RawMail, Unread
from corpus_index.sources.mail import document_id
from corpus_index.threads import Threads

EXACT_DUPLICATE = "exact_duplicate"
NEAR_DUPLICATE = "near_duplicate"
_EXAMPLES = 3


class CleaningOptions(BaseModel):
    """How a corpus is cleaned. Frozen; unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exact_duplicates: bool = Field(
        default=True, description="Drop mails equal in sender, date, subject and folded body"
    )
    near_duplicates: bool | None = Field(
        default=None,
        description="Drop near duplicates; None: for every source but company, whose look-alikes are there on purpose",
    )
    threshold: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        default=0.8, description="Jaccard ratio of word 5-shingles"
    )
    permutations: Annotated[int, Field(ge=16, le=1024)] = Field(
        default=128, description="Length of a MinHash signature"
    )
    max_bytes: Annotated[int, Field(ge=1)] = Field(
        default=DEFAULT_MAX_BYTES, description="Larger messages are dropped unread"
    )
    thread_window_days: Annotated[float, Field(gt=0.0)] = Field(
        default=30.0, description="Same subject and people within this"
    )
    workers: Annotated[int, Field(ge=0, le=64)] | None = Field(
        default=None,
        description="Parsing processes; 0: none; None: one a core, for sources of more than a few thousand mails",
    )


@dataclass(slots=True)
class CleaningReport:
    """Counts that grow while the cleaned iterator is consumed. ``read`` = kept + all that was dropped."""

    read: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    examples: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    copies_in_other_mailboxes: int = 0
    renamed_ids: int = 0
    undated: int = 0
    threads: int = 0

    def drop(self, reason: str, source: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        named = self.examples.setdefault(reason, [])
        if len(named) < _EXAMPLES:
            named.append(source)

    def drop_copy(self, source: str, elsewhere: bool) -> None:
        """An exact duplicate; ``elsewhere``: the kept one lies in another mailbox."""
        self.drop(EXACT_DUPLICATE, source)
        self.copies_in_other_mailboxes += elsewhere

    def to_json(self) -> dict[str, object]:
        """Plain values: counts, and up to 3 example sources a reason."""
        return {
            "read": self.read,
            "kept": self.kept,
            "dropped": dict(sorted(self.dropped.items())),
            "examples": {reason: list(named) for reason, named in sorted(self.examples.items())},
            "copies_in_other_mailboxes": self.copies_in_other_mailboxes,
            "renamed_ids": self.renamed_ids,
            "undated": self.undated,
            "threads": self.threads,
        }

    def render(self) -> str:
        """The report as text for a terminal."""
        lines = [f"read     {self.read:>9,}", f"kept     {self.kept:>9,}{_share(self.kept, self.read)}"]
        for reason, count in sorted(self.dropped.items(), key=lambda item: (-item[1], item[0])):
            named = ", ".join(self.examples.get(reason, []))
            lines.append(f"dropped  {count:>9,}{_share(count, self.read)}  {reason}  (e.g. {named})")
        lines.append(f"threads  {self.threads:>9,}")
        if self.undated:
            lines.append(f"undated  {self.undated:>9,}  (kept, but no date filter finds them)")
        if self.copies_in_other_mailboxes:
            lines.append(f"copies   {self.copies_in_other_mailboxes:>9,}  exact duplicates from another mailbox")
        if self.renamed_ids:
            lines.append(f"renamed  {self.renamed_ids:>9,}  ids that two different mails shared")
        return "\n".join(lines)


def _share(count: int, total: int) -> str:
    return f"  {100 * count / total:5.1f} %" if total else ""


def clean(
    documents: Iterable[Document], options: CleaningOptions | None = None, report: CleaningReport | None = None
) -> Iterator[Document]:
    """Documents without duplicates, with thread ids, in the order they came. ``report`` fills as they are consumed."""
    prepared = (prepare_item(Mail(document)) for document in documents)
    return clean_prepared(prepared, options or CleaningOptions(), report if report is not None else CleaningReport())


def drop_twins(items: Iterable[Item], report: CleaningReport) -> Iterator[Item]:
    """Raw messages without byte-for-byte copies, which are counted as exact duplicates and never parsed."""
    seen: dict[bytes, str] = {}
    for item in items:
        if isinstance(item, RawMail):
            key = raw_key(item.data)
            first = seen.get(key)
            if first is not None:
                report.read += 1
                report.drop_copy(item.source, item.mailbox != first)
                continue
            seen[key] = intern(item.mailbox)
        yield item


def clean_prepared(
    items: Iterable[Prepared | Unread], options: CleaningOptions, report: CleaningReport
) -> Iterator[Document]:
    """The serial half of cleaning: compares each mail with those kept before it. The first copy of a mail is kept."""
    near = NearDuplicates(options.threshold, options.permutations) if options.near_duplicates is not False else None
    threads = Threads(options.thread_window_days)
    seen: dict[bytes, str] = {}
    ids: set[str] = set()
    thread_ids: set[str] = set()
    for item in items:
        report.read += 1
        if isinstance(item, Unread):
            report.drop(item.reason, item.source)
            continue
        document = item.mail.document
        if options.exact_duplicates:
            first = seen.get(item.mark.exact)
            if first is not None:
                report.drop_copy(document.source, first != document.mailbox)
                continue
            seen[item.mark.exact] = intern(document.mailbox)
        if near is not None and near.seen(item.mark):
            report.drop(NEAR_DUPLICATE, document.source)
            continue
        own_id = document.id
        while own_id in ids:  # two mails with one Message-ID, or a rare clash of hashes
            own_id = document_id(f"{own_id}\n{document.source}")
        report.renamed_ids += own_id != document.id
        ids.add(own_id)
        thread = threads.assign(document, item.mail.references, item.trace)
        document = replace(document, id=own_id, thread=thread)
        thread_ids.add(document.thread)
        report.kept += 1
        report.threads = len(thread_ids)
        report.undated += document.date is None
        yield document
