"""What a step does about rollouts that the search index or the judge failed: leave them out, skip the update, or stop
the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from corpus_index.backends.base import IndexUnavailable
from environments.trajectory import StopReason, Trajectory
from training.config import EnvConfig


class RunStop(RuntimeError):
    """The run ends here because its config says so, with a checkpoint; the message says why and how to go on."""


class FaultStop(RunStop):
    """The run ends here, by ``env.on_faults``; the weights are those of the step before."""


class FaultWatch:
    """Counts one step's rollouts and those that ended by an environment fault or found no judge.

    The methods that count raise FaultStop where ``env.on_faults`` is stop and the step is lost.
    """

    def __init__(self, settings: EnvConfig) -> None:
        self._settings = settings
        self._rollouts = 0
        self._faults = 0
        self._unjudged = self._answers = 0
        self._unreadable = False
        self._causes: Counter[str] = Counter()

    def count(self, trajectories: Sequence[Trajectory]) -> None:
        """Add a phase of the step."""
        faulted = [t for t in trajectories if t.stop_reason is StopReason.ENVIRONMENT_FAULT]
        self._rollouts += len(trajectories)
        self._faults += len(faulted)
        self._causes.update(t.events[-1].error for t in faulted if t.events)
        self._judge()

    def unjudged(self, causes: Sequence[str], *, answers: int) -> None:
        """Of ``answers`` among the rollouts counted before, those that the judge failed, each with its cause."""
        self._faults += len(causes)
        self._unjudged += len(causes)
        self._answers += answers
        self._causes.update(f"judge: {cause}" for cause in causes)
        self._judge()

    def unreadable(self, fault: IndexUnavailable) -> None:
        """The step cannot even begin: what its prompts start from could not be read."""
        self._unreadable = True
        self._causes[str(fault)] += 1
        self._judge()

    @property
    def share(self) -> float:
        """Of the step's rollouts so far; 1.0 where it could not begin."""
        return 1.0 if self._unreadable else self._faults / max(self._rollouts, 1)

    @property
    def lost(self) -> bool:
        """Whether too little of the step is left to learn from."""
        unjudged = self._unjudged / max(self._answers, 1)  # without Solvers' pay nobody's is known
        return self._unreadable or max(self.share, unjudged) > self._settings.max_fault_share

    def metrics(self) -> dict[str, float]:
        return {"faults/rollouts": float(self._faults), "faults/share": self.share, "faults/lost": float(self.lost)}

    def summary(self) -> str:
        """One line with the commonest cause; empty where nothing failed."""
        if not self._causes and not self._faults:
            return ""
        what = (
            "the mails to start from could not be read"
            if self._unreadable
            else f"{self._faults} of {self._rollouts} rollouts ended by an environment fault"
            + (f", {self._unjudged} of them for want of a judge" if self._unjudged else "")
        )
        return what + "".join(f" ({cause})" for cause, _ in self._causes.most_common(1))

    def _judge(self) -> None:
        if self.lost and self._settings.on_faults == "stop":
            raise FaultStop(self.summary())
