"""Mails that searches meet again and again, decoded once: episodes of one group ask for the same ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from corpus_index.backends.snippets import FoldedText
from corpus_index.document import Document

# Characters of all mails that are held, bodies also folded and in lower case: some 120 MB. A body of more than a
# hundredth of it would push out too many others.
_MOST, _LONGEST = 40_000_000, 400_000
_BESIDES = 1_000  # what a mail takes beside its body, in characters


class Loaded:
    """A mail and, once a snippet was cut from it, its folded body."""

    __slots__ = ("_folded", "document")

    def __init__(self, document: Document) -> None:
        self.document = document
        self._folded: FoldedText | None = None

    def folded(self) -> FoldedText:
        if self._folded is None:
            self._folded = FoldedText(self.document.body)
        return self._folded


class Remembered:
    """Loaded mails by their place in an index that does not change. May be shared by threads."""

    def __init__(self) -> None:
        self._mails: dict[Hashable, Loaded] = {}
        self._held = 0

    def get(self, place: Hashable, decode: Callable[[], Document]) -> Loaded:
        """The mail at ``place``, from ``decode`` where it is not known; very long ones are not remembered."""
        loaded = self._mails.get(place)
        if loaded is None:
            loaded = Loaded(decode())
            size = len(loaded.document.body) + _BESIDES
            if size <= _LONGEST:
                if self._held + size > _MOST:
                    self._mails.clear()
                    self._held = 0
                self._mails[place] = loaded
                self._held += size
        return loaded
