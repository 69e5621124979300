"""The stand-ins against what they stand in for: a contract that moved must not pass unseen where NeMo-RL is absent."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest
import stand_in_nemo_rl as stand_in
from nemo_rl_source import needs_nemo_rl

PAIRS = [(place, thing) for place, things in stand_in.PLACES.items() for thing in things]
FUNCTIONS = [pair for pair in PAIRS if inspect.isfunction(pair[1])]


def real(place: str, thing: Any) -> Any:
    return getattr(importlib.import_module(place), thing.__name__)


@needs_nemo_rl
@pytest.mark.parametrize(("place", "thing"), FUNCTIONS)
def test_functions_take_the_same_arguments(place: str, thing: Any) -> None:
    ours, theirs = (inspect.signature(each).parameters for each in (thing, real(place, thing)))
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


@needs_nemo_rl
@pytest.mark.parametrize("name", ["EnvironmentInterface", "GenerationInterface"])
def test_interfaces_ask_for_the_same_methods(name: str) -> None:
    place, ours = next((place, thing) for place, thing in PAIRS if thing.__name__ == name)
    theirs = real(place, ours)
    assert ours.__abstractmethods__ == theirs.__abstractmethods__
    for method in ours.__abstractmethods__:
        mine, its = (list(inspect.signature(getattr(each, method)).parameters) for each in (ours, theirs))
        assert mine == its


@needs_nemo_rl
def test_a_step_returns_the_same_fields_in_order() -> None:
    place, ours = next((place, thing) for place, thing in PAIRS if thing.__name__ == "EnvironmentReturn")
    assert ours._fields == real(place, ours)._fields


@needs_nemo_rl
def test_collated_rows_have_the_same_columns() -> None:
    import torch

    row = {
        "message_log": [{"role": "user", "content": "x", "token_ids": torch.tensor([1])}],
        "length": 1,
        "extra_env_info": {"episode_id": "a"},
        "loss_multiplier": 1.0,
        "idx": 0,
        "task_name": "solver",
        "unknown": 3,
    }
    ours = stand_in.rl_collate_fn([row, row])
    theirs = real("nemo_rl.data.collate_fn", stand_in.rl_collate_fn)([row, row])
    assert set(ours) == set(theirs)
    for batch in (ours, theirs):
        assert batch.repeat_interleave(3)["idx"] == [0] * 6
        assert batch["loss_multiplier"].tolist() == [1.0, 1.0]
