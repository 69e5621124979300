"""NeMo-RL's own models of a config, where NeMo-RL can be imported."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic.errors import PydanticUserError


class NotImportable(RuntimeError):
    """NeMo-RL is not installed here; the message is the reason that the import gave."""


def schema_errors(master: Mapping[str, Any]) -> list[str]:
    """What NeMo-RL's ``MasterConfig`` says against a config, key by key; that of its SFT where there is an ``sft``
    section. It misses no typo that ``overlay`` has not caught already: unknown keys pass it.

    Raises NotImportable.
    """
    stage = "sft" if "sft" in master else "grpo"
    try:
        module = importlib.import_module(f"nemo_rl.algorithms.{stage}")
    except (ImportError, PydanticUserError) as error:  # the latter from Python 3.11, whose TypedDict pydantic refuses
        raise NotImportable(str(error).splitlines()[0]) from error
    try:
        module.MasterConfig(**master)
    except ValidationError as error:
        return [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()]
    return []
