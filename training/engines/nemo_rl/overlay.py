"""The ``nemo_rl`` section laid over a file of the checkout. NeMo-RL keeps keys that it does not know without a word, so
they are told apart here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from training.config_load import ConfigError, Tree, merge, nearest_key
from training.config_nemo_rl import Overlay
from training.engines.nemo_rl.checkout import read_defaults

_REPLACED = ("env", "data.train", "data.validation", "policy.optimizer", "logger.wandb")
"""Mappings that are ours as a whole: what the defaults file has there belongs to another model and another task."""


def resolve(defaults: str, decided: Tree, preset: Tree, overlay: Tree) -> dict[str, Any]:
    """A file of the checkout, ``preset`` over it, then ``decided``, which ``overlay`` may not say again, then
    ``overlay``; interpolations resolved. Raises ConfigError with every wrong key."""
    base = read_defaults(defaults)
    for path in _REPLACED:
        remove(base, path.split("."))
    base = merge(merge(base, preset, Overlay), decided, Overlay)
    wrong = [*_refused(overlay, decided), *_unknown(overlay, base, defaults)]
    if wrong:
        raise ConfigError("\n".join(wrong))
    tree = merge(base, _without_signs(overlay), Overlay)
    try:
        return cast(dict[str, Any], OmegaConf.to_container(OmegaConf.create(tree), resolve=True))
    except OmegaConfBaseException as error:
        raise ConfigError(f"{defaults} under this recipe: {error.full_key}: {str(error).splitlines()[0]}") from error


def _refused(overlay: Tree, decided: Tree) -> Iterator[str]:
    """Every leaf of ``overlay`` that is a leaf of ``decided``, lies under one or has one under it."""
    ours = [f"{path}." for path in _leaves(decided)]
    for path in _leaves(_without_signs(overlay)):
        here = f"{path}."
        if any(here.startswith(other) or other.startswith(here) for other in ours):
            yield f"nemo_rl.{path}: the {path.partition('.')[0]} section decides it; set it there, for both engines"


def _unknown(overlay: Tree, known: Tree, defaults: str, prefix: str = "") -> Iterator[str]:
    """A mapping that ``known`` leaves empty or null takes any keys, and so does one that a ``+`` adds."""
    for key, value in overlay.items():
        name = str(key)
        if name.startswith("+"):
            continue
        if key not in known:
            near = nearest_key(name, [str(each) for each in known]) if known else defaults
            yield (
                f"nemo_rl.{prefix}{name}: unknown to {defaults}; nearest: {near}. Write +{name} to add a key that the "
                "file leaves out"
            )
        elif isinstance(value, dict) and isinstance(known[key], dict) and known[key]:
            yield from _unknown(cast(Tree, value), cast(Tree, known[key]), defaults, f"{prefix}{name}.")


def _leaves(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(cast(Tree, value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _without_signs(overlay: Tree) -> Tree:
    return {
        str(key).removeprefix("+"): _without_signs(cast(Tree, value)) if isinstance(value, dict) else value
        for key, value in overlay.items()
    }


def remove(tree: Tree, path: Sequence[str]) -> None:
    """Take a key out of ``tree`` where it is there."""
    for part in path[:-1]:
        tree = tree.get(part, {})
    tree.pop(path[-1], None)
