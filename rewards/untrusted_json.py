"""Untrusted text inside a prompt: as the value of a JSON field, and never as anything else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from environments.untrusted import neutralise

Field = str | Sequence[str]


def data_prompt(fields: Mapping[str, Field], max_chars: Mapping[str, int]) -> str:
    """One JSON object of ``fields``, each text cut to its ``max_chars``.

    Quotes and line ends are escaped by JSON, so that no text leaves its field; protocol tags and special tokens are
    broken up, and angle brackets escaped, so that none becomes a turn of the chat.
    """

    def clean(name: str, text: str) -> str:
        limit = max_chars[name]
        return neutralise(text if len(text) <= limit else f"{text[:limit]} ...")

    data = {
        name: clean(name, value) if isinstance(value, str) else [clean(name, text) for text in value]
        for name, value in fields.items()
    }
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e")
