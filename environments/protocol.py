"""Text <-> Action: one grammar for both roles.

An assistant turn is free text or ``<think>...</think>``, then one call in Hermes / Qwen style::

    <tool_call>
    {"name": "search_keyword", "arguments": {"keywords": ["a"]}}
    </tool_call>

A submission is a call named ``submit``; its schema belongs to the role (environments/roles.py).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from environments.untrusted import fold_line, neutralise

__all__ = [
    "SUBMIT", "Action", "Malformed", "ToolCall", "fold_line", "neutralise", "parse", "render_call", "render_turn",
]  # fmt: skip

SUBMIT = "submit"
MAX_DEPTH = 16  # nesting of a call's JSON; a bool query needs 4

CALL_TAG, _CLOSE = "<tool_call>", "</tool_call>"
_THINK, _END_THINK = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """``thought`` is everything before the call. ``trailing`` is what stood after it: ignored, kept for the log."""

    name: str
    arguments: dict[str, Any]
    thought: str = ""
    trailing: str = ""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A turn without exactly one readable call. ``reason`` is written for the model."""

    reason: str
    thought: str = ""


Action = ToolCall | Malformed


def render_call(name: str, arguments: dict[str, Any]) -> str:
    """The exact text of a call; ``parse`` gives the same name and arguments back."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False, allow_nan=False)
    # A quoted end of a thought would end one that the prompt may have opened, and the call with it.
    call = call.replace(_END_THINK, "\\u003c" + _END_THINK[1:])
    return f"{CALL_TAG}\n{call}\n{_CLOSE}"


def render_turn(call: str, *, reasoning: str = "", content: str = "") -> str:
    """A whole assistant turn: the thought in its tags, what is said aloud, then ``call`` (as ``render_call`` gives it).

    The blank lines are those of Qwen3's chat template, so that a template which renders native tool calls writes the
    same text. ``reasoning`` and ``content`` must be free of protocol tags (``neutralise``).
    """
    thought = f"{_THINK}\n{reasoning}\n{_END_THINK}\n\n" if reasoning else ""
    return f"{thought}{content}{chr(10) if content else ''}{call}"


def parse(text: str) -> Action:
    """Read one assistant turn. Never raises.

    - A call inside ``<think>`` does not count. A ``</think>`` without an opening ends a thought that the prompt opened.
    - Exactly one call a turn; text after it is accepted and kept as ``trailing`` (harsher would punish a model for a
      stray end token), but a second call is not.
    - The JSON is strict: no duplicate keys, no NaN, no unpaired surrogates, bounded nesting.
    """
    first_end = text.find(_END_THINK)
    first_think = text.find(_THINK)
    opened_by_prompt = first_end >= 0 and not 0 <= first_think < first_end
    start = first_end + len(_END_THINK) if opened_by_prompt else 0

    at = _find_call(text, start)
    if at is None:
        return Malformed("the thought is never closed: close it, then write one tool call", _thought(text))
    if at < 0:
        return Malformed("no tool call: end the turn with one tool call", _thought(text))
    thought = _thought(text[:at])
    body = at + len(CALL_TAG)
    try:
        value, end = _decode(text, body)
    except _BadCall as bad:
        return Malformed(bad.reason, thought)
    closing = _skip_space(text, end)
    if not text.startswith(_CLOSE, closing):
        return Malformed("the tool call must hold one JSON object and then its closing tag", thought)
    rest = closing + len(_CLOSE)
    if (_find_call(text, rest) or -1) >= 0:
        return Malformed("one tool call a turn: write only the first and wait for its result", thought)
    return _to_action(value, thought, text[rest:].strip())


def _find_call(text: str, start: int) -> int | None:
    """Index of the next call outside a thought, -1 without one, None where a thought never ends."""
    while True:
        call = text.find(CALL_TAG, start)
        think = text.find(_THINK, start)
        if think < 0 or 0 <= call < think:
            return call
        end = text.find(_END_THINK, think)
        if end < 0:
            return None
        start = end + len(_END_THINK)


def _thought(text: str) -> str:
    return text.replace(_THINK, "").replace(_END_THINK, "").strip()


def _skip_space(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


class _BadCall(ValueError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise _BadCall(f"broken JSON: the key {key!r} occurs twice")
        result[key] = value
    return result


def _no_constant(name: str) -> NoReturn:
    raise _BadCall(f"broken JSON: {name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _BadCall("broken JSON: a number is too large")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)


def _decode(text: str, body: int) -> tuple[object, int]:
    begin = _skip_space(text, body)
    try:
        value, end = _DECODER.raw_decode(text, begin)
    except _BadCall:
        raise
    except json.JSONDecodeError as error:
        at = max(error.pos - begin, 0)
        near = text[error.pos : error.pos + 20].split("\n")[0]
        where = f"near {near!r}" if near else "at its end"
        raise _BadCall(f"broken JSON: {error.msg} at character {at}, {where}") from None
    except RecursionError:
        raise _BadCall(f"broken JSON: nested more than {MAX_DEPTH} deep") from None
    except ValueError:  # an integer with thousands of digits
        raise _BadCall("broken JSON: a number is too large") from None
    _check(value, MAX_DEPTH)
    return cast("object", value), end


def _check(value: object, depth: int) -> None:
    if depth < 0:
        raise _BadCall(f"broken JSON: nested more than {MAX_DEPTH} deep")
    if isinstance(value, str):
        # An unpaired surrogate cannot be written as UTF-8: it would break the search engine and the sample files.
        if any("\ud800" <= char <= "\udfff" for char in value):
            raise _BadCall("broken JSON: an unpaired surrogate in a string")
    elif isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            _check(key, depth)
            _check(item, depth - 1)
    elif isinstance(value, list):
        for item in cast("list[object]", value):
            _check(item, depth - 1)


def _to_action(value: object, thought: str, trailing: str) -> Action:
    if not isinstance(value, dict):
        return Malformed('the tool call must be a JSON object: {"name": ..., "arguments": {...}}', thought)
    call = cast("dict[str, object]", value)
    extra = [key for key in call if key not in ("name", "arguments")]
    if extra:
        return Malformed(f"unknown key {extra[0]!r} in the tool call: only 'name' and 'arguments'", thought)
    name, arguments = call.get("name"), call.get("arguments")
    if not isinstance(name, str) or not name.strip():
        return Malformed("the tool call needs a 'name' (a string)", thought)
    if not isinstance(arguments, dict):
        return Malformed("the tool call needs 'arguments' (a JSON object)", thought)
    return ToolCall(name.strip(), cast("dict[str, Any]", arguments), thought, trailing)
