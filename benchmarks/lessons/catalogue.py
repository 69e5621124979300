"""The lessons. Each claim is one that larger runs paid for; the variants put it on trial at the size of two cores."""

from __future__ import annotations

from common import PLAIN, STARTS
from reward_lessons import FAILED, OUTPUTS, PATTERN, SHAPES, VAGUE
from training_lessons import BALANCE, DUPLICATES, FILTERS, LOSSES, RESUMED, SELECTED, STALE

__all__ = ["LESSONS", "PLAIN", "STARTS"]

_ALL = (
    FILTERS, BALANCE, OUTPUTS, VAGUE, PATTERN, FAILED, RESUMED, DUPLICATES, SELECTED, STALE, LOSSES, SHAPES,
)  # fmt: skip
LESSONS = {lesson.letter: lesson for lesson in _ALL}
