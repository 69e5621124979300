"""The NeMo-RL checkout that a run is configured from: where it lies, which version it is, what its defaults say.

Nothing of NeMo-RL is imported: a laptop without its dependencies resolves and checks a cluster's recipe all the same.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from training.config_load import ConfigError, Tree, read_recipe
from training.config_nemo_rl import Overlay

VERSION = "0.7.0"
"""The release that this engine is written and tested against."""
VARIABLES = ("NEMO_RL_SOURCE", "NEMO_RL_HOME")


def checkout() -> Path:
    """The folder named in ``NEMO_RL_SOURCE`` or ``NEMO_RL_HOME``, else the one that ``nemo_rl`` is imported from.

    Raises ConfigError where there is none, or where it is no NeMo-RL checkout.
    """
    named = next(((name, os.environ[name]) for name in VARIABLES if os.environ.get(name)), None)
    if named is not None:
        where, folder = f"{named[0]} is {named[1]}", Path(named[1])
    else:
        spec = find_spec("nemo_rl")
        if spec is None or spec.origin is None:
            raise ConfigError(
                f"no NeMo-RL checkout: clone https://github.com/NVIDIA-NeMo/RL at v{VERSION} and name its folder in "
                f"{VARIABLES[0]}; in NeMo-RL's container it is there already"
            )
        where, folder = f"nemo_rl is imported from {spec.origin}", Path(spec.origin).parents[1]
    if not (folder / "nemo_rl" / "package_info.py").is_file():
        raise ConfigError(
            f"{where}, which is no NeMo-RL checkout (it has no nemo_rl/package_info.py): the folder of the repository "
            "is wanted, not that of the package; an installed wheel lacks the files that its workers are built from"
        )
    return folder


def version(folder: Path) -> str:
    """As its ``package_info.py`` has it, ``major.minor.patch``."""
    text = (folder / "nemo_rl" / "package_info.py").read_text(encoding="utf-8")
    numbers = dict(re.findall(r"^(MAJOR|MINOR|PATCH) = (\d+)$", text, re.MULTILINE))
    return ".".join(numbers.get(part, "?") for part in ("MAJOR", "MINOR", "PATCH"))


def read_defaults(name: str) -> Tree:
    """A recipe of the checkout with its parents, interpolations left as they stand. Raises ConfigError."""
    _register_resolvers()
    return read_recipe(checkout() / name, Overlay)


def _register_resolvers() -> None:
    """The arithmetic of NeMo-RL's recipes, under the names that it registers itself where it runs."""
    for name, resolver in _RESOLVERS.items():
        if not OmegaConf.has_resolver(name):
            with warnings.catch_warnings():  # renamed in omegaconf 2.4; NeMo-RL's environment has 2.3
                warnings.simplefilter("ignore")
                OmegaConf.register_new_resolver(name, resolver)


_RESOLVERS: dict[str, Callable[[Any, Any], Any]] = {  # of integers, where the recipes want integers
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": lambda a, b: max(a, b),
}
