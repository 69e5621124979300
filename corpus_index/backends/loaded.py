"""Mails that searches meet again and again, decoded once: episodes of one group ask for the same ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from corpus_index.backends.snippets import FoldedText
from corpus_index.document import Document

_MOST, _LONGEST = 5_000, 8_000  # mails, and characters of a body: 120 MB at the very most


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

    def get(self, place: Hashable, decode: Callable[[], Document]) -> Loaded:
        """The mail at ``place``, from ``decode`` where it is not known; very long ones are not remembered."""
        loaded = self._mails.get(place)
        if loaded is None:
            loaded = Loaded(decode())
            if len(loaded.document.body) <= _LONGEST:
                if len(self._mails) >= _MOST:
                    self._mails.clear()
                self._mails[place] = loaded
        return loaded
