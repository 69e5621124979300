"""Sketches of the questions asked lately, against which a new one's diversity is measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter

from rewards.diversity import Sketch

_SKETCHES = TypeAdapter(list[Sketch])


class QuestionMemory:
    """The newest ``window`` sketches, oldest first."""

    def __init__(self, window: int, sketches: Iterable[Sketch] = ()) -> None:
        self._recent: deque[Sketch] = deque(sketches, maxlen=window)

    def __len__(self) -> int:
        return len(self._recent)

    @property
    def recent(self) -> tuple[Sketch, ...]:
        return tuple(self._recent)

    def add(self, sketches: Iterable[Sketch]) -> None:
        self._recent.extend(sketches)

    def state(self) -> dict[str, Any]:
        """What ``load`` reads back, as JSON values."""
        return {"sketches": _SKETCHES.dump_python(list(self._recent), mode="json")}

    @classmethod
    def load(cls, window: int, state: Mapping[str, Any]) -> QuestionMemory:
        """``state`` may be empty."""
        return cls(window, _SKETCHES.validate_python(state.get("sketches", [])))
