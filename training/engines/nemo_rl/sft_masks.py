"""The loss mask of NeMo-RL's SFT preprocessing, read back and compared with ours, token by token."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from environments.trajectory import Trajectory

MessageLog = Sequence[Mapping[str, Any]]
"""NeMo-RL's: ``token_ids`` and ``token_loss_mask`` of each message, tensors ``[tokens]``."""


_ADVICE = (
    "The chat template of the stage is plain ChatML: a model of another family, one with its own system prompt, or "
    "a tokenizer that adds a space to every piece, needs an engine whose template is the model's (engine.name local)"
)


class MaskMismatch(ValueError):
    """NeMo-RL would train on other tokens than the local engine; the message shows the first."""


@dataclass(frozen=True, slots=True)
class ReadBack:
    """Tokens over all rows. ``masked_here`` and ``masked_there`` may differ by a few: a text and the template's glue
    beside it are encoded apart here, as in rollouts, and together there."""

    rows: int
    trained: int
    masked_here: int
    masked_there: int

    def __str__(self) -> str:
        return (
            f"{self.rows} rows read back from NeMo-RL: the same {self.trained} tokens trained, {self.masked_there} "
            f"masked ({self.masked_here} here)"
        )


def read_back(pairs: Iterable[tuple[MessageLog, Trajectory]], decode: Callable[[Sequence[int]], str]) -> ReadBack:
    """Raises MaskMismatch where a row's trained tokens are not ours, in our order, or where its whole text is not."""
    rows = trained = here = there = 0
    for log, trajectory in pairs:
        ids = [int(token) for message in log for token in message["token_ids"]]
        mask = [int(loss) for message in log for loss in message["token_loss_mask"]]
        theirs = [token for token, loss in zip(ids, mask, strict=True) if loss]
        ours = [t for t, loss in zip(trajectory.token_ids, trajectory.loss_mask, strict=True) if loss]
        at = _first_difference(theirs, ours)
        if at is not None:
            raise MaskMismatch(
                f"row {trajectory.uid}: NeMo-RL trains {len(theirs)} tokens and we {len(ours)}; at trained token {at} "
                f"it has {theirs[at : at + 8]}, we {ours[at : at + 8]}. {_ADVICE}"
            )
        text, expected = decode(ids), decode(list(trajectory.token_ids))
        at = _first_difference(text, expected)
        if at is not None:
            raise MaskMismatch(
                f"row {trajectory.uid}: NeMo-RL reads {text[at : at + 40]!r} at character {at}, and we "
                f"{expected[at : at + 40]!r}. {_ADVICE}"
            )
        rows, trained = rows + 1, trained + len(ours)
        here, there = here + len(trajectory.token_ids) - len(ours), there + len(ids) - len(theirs)
    return ReadBack(rows, trained, here, there)


def _first_difference(theirs: Sequence[object], ours: Sequence[object]) -> int | None:
    place = next((k for k, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), None)
    return min(len(theirs), len(ours)) if place is None and len(theirs) != len(ours) else place
