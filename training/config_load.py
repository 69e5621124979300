"""YAML recipes to a validated Config: inheritance by ``defaults:``, ``key=value`` overrides, interpolation."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias, cast, get_args

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError
from rapidfuzz import fuzz
from yaml import YAMLError

from training.config import Config

Tree: TypeAlias = dict[Any, Any]
"""A mapping as YAML gives it: nothing is known of its values until the schema has checked them."""


class ConfigError(ValueError):
    """A recipe or an override that means nothing, or means something forbidden. The message says what to write."""


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a recipe and all it inherits from, apply ``overrides``, resolve interpolations and validate.

    In a recipe, ``defaults:`` names its parents (a string or a list, relative to the recipe's folder). Sections are
    merged key by key; the later parent wins over the earlier and the child over both. A value that is a mapping, such
    as ``selfplay.hops``, is replaced as a whole. An override is ``section.key=value`` with a YAML value; a leading
    ``+`` or ``++`` is accepted.

    Raises:
        ConfigError: a file is missing or is no YAML mapping, ``defaults`` form a circle, an override has no ``=``, an
            interpolation cannot be resolved, a key is unknown, or a value has the wrong type or is forbidden.
    """
    tree = merge(plain_tree(Config()), read_recipe(Path(path), Config), Config)
    for override in overrides:
        _apply_override(tree, override)
    try:
        resolved = OmegaConf.to_container(OmegaConf.create(tree), resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{path}: {error.full_key or 'config'}: {_first_line(error)}") from error
    return validate_config(cast(Tree, resolved), str(path))


def validate_config(tree: Mapping[Any, Any], origin: str = "config") -> Config:
    """A nested mapping without interpolations to a Config. ``origin`` opens the messages. Raises ConfigError."""
    unknown = list(_unknown_keys(tree, Config))
    if unknown:
        known = list(_known_keys(Config))
        lines = (f"{origin}: unknown key {key}; nearest: {nearest_key(key, known)}" for key in unknown)
        raise ConfigError("\n".join(lines))
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{origin}: {line}" for line in _explain(error))) from error


def dump_config(config: Config, path: str | Path) -> None:
    """Write the resolved config as YAML that ``load_config`` reads back. The file is replaced in one step."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(OmegaConf.to_yaml(OmegaConf.create(plain_tree(config))))
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def plain_tree(config: Config) -> Tree:
    """The config as YAML and JSON can hold it."""
    return _plain(config.model_dump())


def read_recipe(path: Path, schema: type[BaseModel], children: tuple[Path, ...] = ()) -> Tree:
    """A recipe merged with its parents as ``schema`` says, without defaults, overrides and interpolation.

    ``children`` are the recipes that asked for it, the outermost first. Raises ConfigError.
    """
    path = path.resolve()
    if path in children:
        circle = " -> ".join(str(each) for each in (*children[children.index(path) :], path))
        raise ConfigError(f"defaults form a circle: {circle}; remove one of them")
    if not path.is_file():
        asked_by = f" (named in defaults of {children[-1]})" if children else ""
        raise ConfigError(f"{path}: no such recipe{asked_by}")
    try:
        raw = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except (YAMLError, OmegaConfBaseException, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: expected a mapping of sections, got a {type(raw).__name__}")
    own = cast(Tree, raw)
    defaults: object = own.pop("defaults", [])
    parents = cast(list[object], defaults) if isinstance(defaults, list) else [defaults]
    if not all(isinstance(parent, str) for parent in parents):
        raise ConfigError(f"{path}: defaults: got {defaults!r}, expected a file name or a list of them")
    tree: Tree = {}
    for parent in parents:
        tree = merge(tree, read_recipe(path.parent / str(parent), schema, (*children, path)), schema)
    return merge(tree, own, schema)


def merge(parent: Tree, child: Tree, schema: type[BaseModel]) -> Tree:
    """``child`` over ``parent``: sections of ``schema`` key by key, every other value as a whole."""
    merged = dict(parent)
    for key, value in child.items():
        section = _section(schema, key)
        old: object = merged.get(key)
        if section is not None and isinstance(old, dict) and isinstance(value, dict):
            merged[key] = merge(cast(Tree, old), cast(Tree, value), section)
        else:
            merged[key] = value
    return merged


def _apply_override(tree: Tree, override: str) -> None:
    name, equals, text = override.lstrip("+").partition("=")
    parts = name.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"override {override!r}: expected section.key=value, for example grpo.seed=1")
    try:
        value = cast(Tree, OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]), resolve=False))["value"]
    except (YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"override {override!r}: the value is not YAML: {_first_line(error)}") from error
    node = tree
    for part in parts[:-1]:
        key = _key(node, part)
        child: object = node.get(key)
        node[key] = node = dict(cast(Tree, child)) if isinstance(child, dict) else {}
    node[_key(node, parts[-1])] = value


def _key(node: Tree, part: str) -> str | int:
    """``hops.2`` means the integer key 2 of the mapping, as YAML reads it."""
    return int(part) if part.isdecimal() and part not in node else part


def _section(schema: type[BaseModel], key: object) -> type[BaseModel] | None:
    """The model behind ``key``, or None where the field holds a value (a mapping such as ``hops`` is one). Below a
    section that takes any key, every mapping is a section."""
    if _takes_any_key(schema):
        return schema
    field = schema.model_fields.get(key) if isinstance(key, str) else None
    if field is None:
        return None
    kinds: tuple[object, ...] = (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _takes_any_key(schema: type[BaseModel]) -> bool:
    return schema.model_config.get("extra") == "allow"


def _unknown_keys(tree: Mapping[Any, Any], schema: type[BaseModel], prefix: str = "") -> Iterator[str]:
    if _takes_any_key(schema):
        return
    for key, value in tree.items():
        section = _section(schema, key)
        if key not in schema.model_fields:
            yield f"{prefix}{key}"
        elif section is not None and isinstance(value, dict):
            yield from _unknown_keys(cast(Tree, value), section, f"{prefix}{key}.")


def _known_keys(schema: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for key in schema.model_fields:
        yield f"{prefix}{key}"
        section = _section(schema, key)
        if section is not None:
            yield from _known_keys(section, f"{prefix}{key}.")


def nearest_key(unknown: str, known: Sequence[str]) -> str:
    """By the last part's letters or words; a sibling is preferred to an equally near key of another section."""
    parent, _, leaf = unknown.rpartition(".")
    words = leaf.replace("_", " ")

    def nearness(candidate: str) -> float:
        other_parent, _, other = candidate.rpartition(".")
        other_words = other.replace("_", " ")
        likeness = max(fuzz.ratio(words, other_words), fuzz.token_sort_ratio(words, other_words))
        return likeness + (30 if parent == other_parent else 0)

    return max(known, key=nearness)


def _explain(error: ValidationError) -> Iterator[str]:
    for detail in error.errors():
        key = ".".join(str(part) for part in detail["loc"])
        prefix = f"{key}: " if key else ""
        message = detail["msg"]
        if detail["type"] == "value_error":
            yield prefix + message.removeprefix("Value error, ")
        else:
            value: object = detail["input"]
            expected = message.removeprefix("Input should be ")
            yield f"{prefix}got {value!r} ({type(value).__name__}), expected {expected}"


def _plain(value: object) -> Any:
    """Only what YAML writes: an enum by its value, a path or a date as text, a tuple as a list."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in cast(Mapping[object, object], value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in cast(Sequence[object], value)]
    return value


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
