from __future__ import annotations

import json

from rewards.diversity import Sketch
from training.memory import QuestionMemory


def sketch(number: int) -> Sketch:
    return Sketch.of(f"What is the budget of P{number}?", f"${number}", (f"m{number}", "m0"))


def test_the_newest_are_remembered() -> None:
    memory = QuestionMemory(3)
    memory.add(map(sketch, range(5)))
    assert memory.recent == tuple(map(sketch, (2, 3, 4)))
    memory.add([sketch(9)])
    assert memory.recent == tuple(map(sketch, (3, 4, 9)))


def test_a_checkpoint_brings_the_memory_back() -> None:
    memory = QuestionMemory(3)
    memory.add(map(sketch, range(5)))
    state = json.loads(json.dumps(memory.state()))
    assert QuestionMemory.load(3, state).recent == memory.recent
    assert QuestionMemory.load(2, state).recent == memory.recent[1:]  # a smaller window keeps the newest
    assert QuestionMemory.load(3, {}).recent == ()
