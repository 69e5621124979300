"""The guard for text that others wrote: nothing in a mail may become a special token or a protocol tag."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

# Characters that show nothing: Unicode's Default_Ignorable_Code_Point beyond the format characters (category Cf).
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_BLANKS = {ord("\n"): " ", ord("\t"): " "}
_LINE_BREAKS = "\r\x0b\x0c\x85\u2028\u2029"

# Possessive, so that a tag followed by a thousand spaces costs a thousand steps and not their square.
_SLASH = r"\s*+(?:/\s*+)?"
_GAP = r"[\s_-]*"
_TAG_NAMES = "|".join(
    name.replace("_", _GAP)
    for name in (
        "think", "thinking", "tool", "tools", "tool_call", "tool_calls", "tool_response", "tool_responses",
        "tool_result", "tool_results", "tool_use", "function", "functions", "function_call", "function_calls",
        "function_response", "function_result", "function_results",
    )
)  # fmt: skip
_SPECIAL_NAMES = "|".join(
    name.replace("_", _GAP)
    for name in (
        "s", "unk", "pad", "bos", "eos", "mask", "cls", "sep", "start_of_turn", "end_of_turn", "start_of_image",
        "end_of_text", "im_start", "im_end", r"unused\d*", r"extra_id_\d+", r"reserved_\w+",
    )
)  # fmt: skip
# Each pattern looks ahead from the one character that is edited, so overlapping tags are all found. They run over
# the folded text. A name must end the tag or be followed by a space: <tools@example.com> stays an address.
_ANGLE = re.compile(
    rf"<(?={_SLASH}(?:(?:{_TAG_NAMES})(?:[\s/>=]|\Z)|(?:{_SPECIAL_NAMES})\s*+/?\s*+>|\||<{_SLASH}sys\s*+>))"
)
_DOUBLE = re.compile(rf"(?<=<)<(?={_SLASH}sys\s*+>)")
_BRACKET = re.compile(
    rf"\[(?=({_SLASH}(?:inst|system_prompt|available_tools|tool_calls|tool_results|tool_content|args|call_id|"
    r"img|img_break|img_end|think|prefix|middle|suffix|cls|sep|pad|unk|mask|bos|eos|gmask)\s*+)\])"
)
_HARMLESS = {"<": "‹", "[": "(", "{": "("}


@lru_cache(maxsize=4096)
def _fold_char(char: str) -> str:
    """A character's plain look-alike (full width, accented, small forms; lower case), always one character."""
    base, *marks = unicodedata.normalize("NFKD", char)
    if any(not unicodedata.combining(mark) for mark in marks):
        return char
    lower = base.lower()
    return lower if len(lower) == 1 else base


def _fold(text: str) -> str:
    """Same length as ``text``, so that what is found in the fold is edited in the original."""
    if text.isascii():
        return text.lower()
    text = text.replace("İ", "I").lower()  # the one character whose lower case is longer
    return _replaced(text, _fold_char)


def _replaced(text: str, rename: Callable[[str], str]) -> str:
    # A text has few different characters: replacing each once is far cheaper than asking about every place.
    for char in set(text):
        new = rename(char)
        if new != char:
            text = text.replace(char, new)
    return text


@lru_cache(maxsize=4096)
def _visible(char: str) -> str:
    if char in _LINE_BREAKS:
        return "\n"
    category = unicodedata.category(char)
    if category == "Cs":
        return "\ufffd"
    hidden = (category in ("Cc", "Cf") and char not in "\n\t") or _INVISIBLE.match(char)
    return "" if hidden else char


def strip_invisible(text: str) -> str:
    """Drop control, zero-width and direction characters; every line break becomes ``\\n``."""
    if text.isascii() and text.translate(_BLANKS).isprintable():
        return text  # the usual mail, in a hundredth of the time
    return _replaced(text.replace("\r\n", "\n"), _visible)


@lru_cache(maxsize=64)
def _tokens_pattern(special_tokens: tuple[str, ...]) -> re.Pattern[str] | None:
    # Bare white space can be a "special" token of a tokenizer; breaking every space of a mail would help nobody.
    folded = sorted({_fold(token.strip()) for token in special_tokens if token.strip()}, key=len, reverse=True)
    return re.compile(f"(?={'|'.join(map(re.escape, folded))})") if folded else None


def neutralise(text: str, special_tokens: Sequence[str] = ()) -> str:
    """Make protocol tags and special tokens in untrusted text harmless yet readable: ``‹tool_call>``, ``(INST)``.

    Tags are found in any case, with spaces inside, in full-width or accented letters, and after invisible characters
    are gone. ``special_tokens`` adds the tokenizer's own. Idempotent. What it misses still cannot become a special
    token: ChatFormat encodes content with special tokens off.
    """
    text = strip_invisible(text)
    pattern = _tokens_pattern(tuple(special_tokens))
    if pattern is None and "<" not in text and "[" not in text and text.isascii():
        return text
    folded = _fold(text)
    edits: dict[int, str] = {}
    for match in (*_ANGLE.finditer(folded), *_DOUBLE.finditer(folded)):
        edits[match.start()] = "‹"
    for match in _BRACKET.finditer(folded):
        edits[match.start()] = "("
        edits[match.end(1)] = ")"
    if pattern is not None:
        for match in pattern.finditer(folded):
            at = match.start()
            edits.setdefault(at, _HARMLESS.get(folded[at], f"{text[at]}·"))
    if not edits:
        return text
    pieces: list[str] = []
    last = 0
    for position in sorted(edits):
        pieces += (text[last:position], edits[position])
        last = position + 1
    return "".join((*pieces, text[last:]))


def fold_line(text: str) -> str:
    """One line: every run of white space becomes one space."""
    return " ".join(text.split())
