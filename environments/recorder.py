"""Collects one episode's exact token ids as they are sampled and observed."""

from __future__ import annotations

from collections.abc import Sequence

from environments.episode import EpisodeState
from environments.trajectory import StopReason, Trajectory


class Recorder:
    """Aligned lists, ``[tokens]``: ``loss_mask`` is 1 exactly on sampled ids, ``logprobs`` is 0.0 elsewhere."""

    def __init__(self, prompt_ids: Sequence[int]) -> None:
        self.token_ids: list[int] = []
        self.loss_mask: list[int] = []
        self.logprobs: list[float] = []
        self.turn_starts: list[int] = []
        self.observed(prompt_ids)

    def __len__(self) -> int:
        return len(self.token_ids)

    def sampled(self, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """One turn of the policy, end-of-turn token included if it was sampled. Raises ValueError."""
        if not ids or len(ids) != len(logprobs):
            raise ValueError(
                f"a turn of {len(ids)} sampled ids with {len(logprobs)} log-probs; expected equal numbers above 0"
            )
        self.turn_starts.append(len(self.token_ids))
        self.token_ids.extend(ids)
        self.loss_mask.extend([1] * len(ids))
        self.logprobs.extend(logprobs)

    def observed(self, ids: Sequence[int]) -> None:
        """Ids that the policy did not choose: the prompt, tool results, template glue."""
        self.token_ids.extend(ids)
        self.loss_mask.extend([0] * len(ids))
        self.logprobs.extend([0.0] * len(ids))

    def trajectory(
        self,
        *,
        uid: str,
        state: EpisodeState,
        policy_version: int,
        messages: Sequence[dict[str, str]] = (),
        stop_reason: StopReason | None = None,
    ) -> Trajectory:
        """The finished episode. ``stop_reason`` is the engine's own (MAX_TOKENS); without it, the state's.

        Raises ValueError when neither names one.
        """
        reason = stop_reason or state.stop_reason
        if reason is None:
            raise ValueError(
                f"trajectory {uid}: the episode has not ended after {state.turn} turns; give a stop_reason"
            )
        return Trajectory(
            uid=uid,
            task=state.task,
            token_ids=tuple(self.token_ids),
            loss_mask=tuple(self.loss_mask),
            logprobs=tuple(self.logprobs),
            stop_reason=reason,
            policy_version=policy_version,
            turn_starts=tuple(self.turn_starts),
            events=state.events,
            opened=state.opened,
            submission=state.submission,
            messages=tuple(messages),
        )
