"""Text in one alphabet, and its words: what has to be the same wherever two texts are compared."""

from __future__ import annotations

import re
import unicodedata

WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "‑": "-"})


def fold(text: str) -> str:
    """One alphabet: compatibility forms, accents, invisible characters, quotes and dashes evened out; case kept."""
    if text.isascii():
        return " ".join(text.split())
    # One character can become 18 in NFKC: honest text hardly grows, and a flood is cut before the slow steps.
    text = unicodedata.normalize("NFKC", text.translate(_QUOTES))[: len(text) + 1000]
    text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) not in ("Mn", "Cf"))
    return " ".join(unicodedata.normalize("NFC", text).split())


def words(text: str) -> tuple[str, ...]:
    """Casefolded words of ``text`` in order: runs of letters and digits, possessive 's dropped."""
    return tuple(w.removesuffix("'s") for w in WORD.findall(fold(text).casefold()))
