"""Plain-text snippets: the window of a body that holds most of the query's words, and where they are in it.

Works on stems, so any backend with the same analyser can use it. Only words that begin like a stem are analysed: that
keeps a snippet at some ten microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

MAX_SCANNED = 20_000  # characters of a body that are looked at; a match further down still counts for the score
_WORD = re.compile(r"[^\W_]+")  # a word as the analyser sees it: letters and digits; "_" separates


class FoldedText:
    """A body on one line, ready for snippets: ``text`` with whitespace folded, ``lowered`` of the same length."""

    __slots__ = ("lowered", "text")

    def __init__(self, body: str) -> None:
        self.text = " ".join(body[:MAX_SCANNED].split())
        lowered = self.text.lower()
        if len(lowered) != len(self.text):  # a few letters change length in lower case
            lowered = "".join(low if len(low := letter.lower()) == 1 else letter for letter in self.text)
        self.lowered = lowered


class Snippeter:
    """Cuts snippets for one query. ``stem_of`` maps a surface word to its stem ("" where it has none)."""

    def __init__(self, stems: Iterable[str], stem_of: Callable[[str], str]) -> None:
        self._stems = frozenset(stems)
        self._stem_of = stem_of
        self._known: dict[str, str] = {}  # by surface word: a common one stands in a body a hundred times
        starts = {start for stem in self._stems for start in _starts(stem)}
        # What begins with "gasp" begins with "gas": without the longer one no word is found twice.
        self._starts = [start for start in starts if not any(start[:end] in starts for end in range(1, len(start)))]

    def cut(self, folded: FoldedText, chars: int) -> tuple[str, tuple[tuple[int, int], ...]]:
        """At most ``chars`` characters, cut between words, and highlights as ``[start, end)`` offsets into them.

        Without a match it is the start of the text. ``chars=0`` gives "".
        """
        if chars <= 0:
            return "", ()
        matches = self._matches(folded)
        start, end = _window(folded.text, *(_densest(matches, chars) if matches else (0, 0)), chars)
        marks = tuple((at - start, stop - start) for at, stop, _ in matches if start <= at and stop <= end)
        return folded.text[start:end], marks

    def _matches(self, folded: FoldedText) -> list[tuple[int, int, str]]:
        text, lowered, stems, stem_of, known = folded.text, folded.lowered, self._stems, self._stem_of, self._known
        find, match = lowered.find, _WORD.match
        found: list[tuple[int, int, str]] = []
        for start in self._starts:
            at = find(start)
            while at >= 0:
                if at and lowered[at - 1].isalnum():  # in the middle of a word
                    at = find(start, at + 1)
                    continue
                word = match(lowered, at)
                if word is None:
                    break
                end = word.end()
                surface = text[at:end]
                stem = known.get(surface)
                if stem is None:
                    stem = known[surface] = stem_of(surface)
                if stem in stems:
                    found.append((at, end, stem))
                at = find(start, end)
        return sorted(found) if len(self._starts) > 1 else found


def _starts(stem: str) -> tuple[str, ...]:
    """What a word of the stem begins with: the stem, but for its last letter in happy/happi, hoping/hope, skies/sky and
    ability/abl. Short ones are spelt out, for "th" stands in too many words that are no "the"."""
    if len(stem) < 3 or stem[-1] not in "ieyl":
        return (stem,)
    return (stem[:-1],) if len(stem) > 3 else (stem, stem[:-1] + ("y" if stem[-1] == "i" else "i"))


def _densest(matches: list[tuple[int, int, str]], chars: int) -> tuple[int, int]:
    """Where the context of the best window begins, and its first match.

    Best: most different words, then most words, then earliest.
    """
    first_start, last_end = matches[0][0], matches[-1][1]
    if last_end - first_start > chars:
        best, counts, last, total = (0, 0), dict[str, int](), 0, len(matches)
        for first, (start, _, stem) in enumerate(matches):
            while last < total and (matches[last][1] - start <= chars or last == first):
                found = matches[last][2]
                counts[found] = counts.get(found, 0) + 1
                last += 1
            if (len(counts), last - first) > best:
                best, first_start, last_end = (len(counts), last - first), start, matches[last - 1][1]
            if last == total:
                break  # what is left are parts of this window
            counts[stem] -= 1
            if not counts[stem]:
                del counts[stem]
    return max(0, first_start - max(0, chars - (last_end - first_start)) // 3), first_start


def _window(text: str, start: int, first_match: int, chars: int) -> tuple[int, int]:
    """``[start, end)`` moved to word boundaries, but never past the first match."""
    if start > 0 and text[start - 1] != " ":
        space = text.find(" ", start, first_match)
        start = space + 1 if space >= 0 else first_match
    end = start + chars
    if end < len(text) and text[end] != " ":
        space = text.rfind(" ", start + chars * 3 // 4, end)
        end = space if space > 0 else end
    return start, min(end, len(text))
