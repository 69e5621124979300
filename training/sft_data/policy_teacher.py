"""The policy as its own teacher: rejection sampling. It plays as in a rollout; the filters keep what came out right."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from environments.chat_rows import row_of
from environments.trajectory import StopReason, Trajectory
from training.engines.base import Engine, Sampling
from training.sft_data.teachers import Solved, Try


class PolicyTeacher:
    name = "policy"

    def __init__(self, engine: Engine, *, temperature: float, seed: int, batch: int) -> None:
        """``batch`` episodes are rolled out at once and told of together."""
        self._engine = engine
        self._temperature = temperature
        self._seed = seed
        self._batch = batch

    def play(self, tries: Sequence[Try], landed: Callable[[Solved], None]) -> None:
        for start in range(0, len(tries), self._batch):
            part = tries[start : start + self._batch]
            # By what is rolled out, so that a command that goes on draws the same numbers wherever a batch begins.
            key = hashlib.blake2b("\n".join(one.uid for one in part).encode(), digest_size=6).digest()
            sampling = Sampling(temperature=self._temperature, seed=self._seed ^ int.from_bytes(key, "little"))
            played = self._engine.rollout([one.taught.task for one in part], sampling)
            for one, trajectory in zip(part, played, strict=True):
                solved = _solved(one, trajectory)
                if solved is not None:
                    landed(solved)


def _solved(one: Try, trajectory: Trajectory) -> Solved | None:
    """None where the search index was away: it is played again."""
    if trajectory.stop_reason is StopReason.ENVIRONMENT_FAULT:
        return None
    if trajectory.stop_reason is not StopReason.SUBMITTED:
        return Solved(uid=one.uid, trouble=trajectory.stop_reason.value)
    return Solved(uid=one.uid, row=row_of(trajectory).model_copy(update={"id": one.uid}))
