"""Which hops Proposers are asked for and how strictly they are checked, as a run goes on (``selfplay.curriculum``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from training.config import Config
from training.config_curriculum import PhaseConfig, Until


class Curriculum:
    """Walks the phases. ``phase`` is the number of the present one, from 0; ``streak`` counts the steps in a row in
    which its measures held. Without phases it changes nothing."""

    def __init__(self, phases: Sequence[PhaseConfig] = (), phase: int = 0, streak: int = 0) -> None:
        self._phases = tuple(phases)
        self.phase = min(phase, max(len(self._phases) - 1, 0))
        self.streak = streak

    def applied(self, config: Config) -> Config:
        """``config`` as the present phase wants it."""
        if not self._phases:
            return config
        phase, rewards = self._phases[self.phase], config.rewards
        checks = rewards.proposer.checks.model_copy(update={"bridge": phase.strict})
        necessity = rewards.reader.necessity.model_copy(update={"enabled": phase.strict})
        return config.model_copy(
            update={
                "selfplay": config.selfplay.model_copy(update={"hops": phase.hops}),
                "rewards": rewards.model_copy(
                    update={
                        "proposer": rewards.proposer.model_copy(update={"checks": checks}),
                        "reader": rewards.reader.model_copy(update={"necessity": necessity}),
                    }
                ),
            }
        )

    def metrics(self) -> dict[str, float]:
        return {"curriculum/phase": float(self.phase)} if self._phases else {}

    def advance(self, step: int, metrics: Mapping[str, float]) -> str:
        """Take in a finished step. What to say where the next one begins another phase, else empty."""
        until = self._phases[self.phase].until if self._phases else None
        if until is None or self.phase + 1 == len(self._phases):
            return ""
        self.streak = self.streak + 1 if _holds(until, metrics) else 0
        by_schedule = until.step is not None and step >= until.step
        if not by_schedule and self.streak < until.steps:
            return ""
        why = f"step {until.step} is over" if by_schedule else f"its measures held for {until.steps} steps"
        self.phase, self.streak = self.phase + 1, 0
        now = self._phases[self.phase]
        hops = ", ".join(f"{share:.0%} {count}-hop" for count, share in now.hops.items())
        return f"curriculum: phase {self.phase} from step {step + 1} ({hops}{', strict' if now.strict else ''}): {why}"

    def state(self) -> dict[str, Any]:
        """What ``load`` reads back, as JSON values."""
        return {"phase": self.phase, "streak": self.streak}

    @classmethod
    def load(cls, phases: Sequence[PhaseConfig], state: Mapping[str, Any]) -> Curriculum:
        """``state`` may be empty."""
        return cls(phases, state.get("phase", 0), state.get("streak", 0))


def _holds(until: Until, metrics: Mapping[str, float]) -> bool:
    """Whether the step met all the measures that are given. A step that measured nothing did not."""
    if until.valid_rate is None and until.success is None:
        return False
    valid, success = metrics.get("proposals/valid_rate"), metrics.get("proposals/p_hat")
    if until.valid_rate is not None and (valid is None or valid < until.valid_rate):
        return False
    return until.success is None or (success is not None and until.success[0] <= success <= until.success[1])
