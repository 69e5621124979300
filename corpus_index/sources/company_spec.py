"""Which company: its seed, split and size, and how many of its mails are noise.

Spec form: ``company:seed=7,projects=80,split=train`` (every key optional).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from corpus_index.sources.items import SourceError

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompanySpec:
    """Shares are fractions of the fact mails. ``moved`` reviews have an outdated mail beside the valid one."""

    seed: int = 0
    split: str = "train"
    projects: int = 80
    moved: float = 0.25
    chatter: float = 0.25
    forwards: float = 0.08
    duplicates: float = 0.05

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise SourceError(f"company split {self.split!r}: expected one of {', '.join(SPLITS)}")
        if not 4 <= self.projects <= 300:
            raise SourceError(f"company projects={self.projects}: expected 4 to 300")
        for name in ("moved", "chatter", "forwards", "duplicates"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise SourceError(f"company {name}={share}: expected a share from 0 to 1")


def parse_spec(text: str) -> CompanySpec:
    """``seed=7,projects=80,split=test``; raises SourceError naming the unknown or ill-typed key."""
    types: dict[str, type[int] | type[float] | type[str]] = {
        f.name: type(getattr(CompanySpec(), f.name)) for f in fields(CompanySpec)
    }
    values: dict[str, int | float | str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if key not in types or not equals:
            raise SourceError(f"company spec {part!r}: expected key=value with a key of {', '.join(types)}")
        try:
            values[key] = types[key](value)
        except ValueError as error:
            raise SourceError(f"company spec {part!r}: {key} is a {types[key].__name__}") from error
    return CompanySpec(**values)  # type: ignore[arg-type]
