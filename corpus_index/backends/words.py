"""Words as the backends see them: the analysers of the embedded engine, and the stems that snippets highlight."""

from __future__ import annotations

import threading
from functools import lru_cache

from tantivy import Filter, TextAnalyzer, TextAnalyzerBuilder, Tokenizer

from corpus_index.document import encodable
from corpus_index.query import MAX_TEXT

ENGLISH, WORDS = "english_v1", "words_v1"  # names written into the index: change them with the analysers below
MAX_WORD = 60  # bytes from which on a run is encoded data, not a word


def analysers() -> dict[str, TextAnalyzer]:
    """``ENGLISH`` for subject and body; ``WORDS`` for names and addresses, which must not be stemmed."""

    def words() -> TextAnalyzerBuilder:  # a builder can build once only
        return TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(MAX_WORD)).filter(Filter.lowercase())

    return {WORDS: words().build(), ENGLISH: words().filter(Filter.stemmer("english")).build()}


class Words:
    """Texts to words and stems; may be shared by threads."""

    def __init__(self) -> None:
        self._analysers = analysers()
        self._lock = threading.Lock()  # an analyser holds its token stream: one text at a time
        self._stems: dict[str, str] = {}
        self._known = lru_cache(maxsize=20_000)(self._analysed)  # Solvers of a group ask for the same words

    def tokens(self, analyser: str, text: str) -> tuple[tuple[int, str], ...]:
        """(position, word) of a text; positions have holes where a run was too long."""
        return self._known(analyser, text) if len(text) <= MAX_TEXT else self._analysed(analyser, text)

    def _analysed(self, analyser: str, text: str) -> tuple[tuple[int, str], ...]:
        with self._lock:
            tokens = self._analysers[analyser].pre_tokenize(encodable(text)).tokens
        return tuple((token.position, token.text) for token in tokens)

    def stem(self, word: str) -> str:
        """The stem of one surface word, remembered; "" where it is not one word."""
        known = self._stems.get(word)
        if known is None:
            tokens = self._analysed(ENGLISH, word)  # remembered once, below
            known = tokens[0][1] if len(tokens) == 1 else ""
            if len(self._stems) >= 50_000:
                self._stems.clear()
            self._stems[word] = known
        return known
