"""Generation weights that fall behind the trained ones, as those of an inference server that is synchronised seldom."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.engines.models import Policy, frozen_copy, load_weights

_FOLDER = "generation"


class LaggingWeights:
    """A copy of the trained weights that is brought up to them at every ``every``-th ``sync``. With 1 there is no copy:
    the trained module itself generates."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._copy: Policy | None = None
        self._version = 0
        self._syncs = 0

    def policy(self, trained: Policy, version: int) -> tuple[Policy, int]:
        """What generates, and the version its weights are of."""
        if self._every == 1:
            return trained, version
        if self._copy is None:
            self._copy, self._version = frozen_copy(trained), version
        return self._copy, self._version

    def sync(self, trained: Policy, version: int) -> None:
        self._syncs += 1
        if self._copy is not None and self._syncs % self._every == 0:
            self._copy.model.load_state_dict(trained.model.state_dict())
            self._version = version

    def drop(self) -> None:
        """The next rollout starts from the weights trained by then: another stage has begun."""
        self._copy = None

    def save(self, folder: Path) -> dict[str, Any]:
        """Writes the copy, if there is one, and returns the rest of the state."""
        if self._copy is not None:
            self._copy.model.save_pretrained(folder / _FOLDER)
        return {"version": self._version, "syncs": self._syncs}

    def load(self, folder: Path, state: Mapping[str, Any], trained: Policy) -> None:
        """``state``: what ``save`` returned; empty for a checkpoint from before there was one."""
        self._version, self._syncs = int(state.get("version", 0)), int(state.get("syncs", 0))
        self._copy = None
        if self._every > 1 and (folder / _FOLDER).is_dir():
            self._copy = frozen_copy(trained)
            load_weights(self._copy, folder / _FOLDER)
