"""What a lesson is: a claim, the runs that test it, and the rule that turns their numbers into a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from evaluation.curve import Series

Part = Literal["failure", "cure"]
Curves = Mapping[str, Sequence[Mapping[str, Series]]]
"""Variant to one ``{metric: series}`` a seed, all variants in the same order of seeds."""

SELF_PLAY = "examples/run_selfplay.py"
SFT = "sft"
"""The start that all runs of a seed share unless a variant names another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One run of a lesson a seed: the lessons' recipe with ``overrides``.

    ``start`` names the run whose last weights it begins with: a start (``catalogue.STARTS``) or another variant of the
    lesson. ``shared`` runs belong to no lesson and are played once for all of them. ``script`` plays it: the self-play
    script, or one of this folder that bends a rule which production code does not let one bend.
    """

    name: str
    overrides: tuple[str, ...] = ()
    start: str = SFT
    goes_on: str = ""
    """The variant whose finished run, checkpoints and all, is copied and gone on with; empty: a run of its own."""
    restart: bool = False
    """Start that copy over from its SFT weights, with the questions that it gathered."""
    shared: bool = False
    script: str = SELF_PLAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """``metric`` of ``variant`` lies at least ``margin`` above that of ``other`` (``below``: under it).

    Compared are the means over the last third of what was logged; without ``other``, with the mean over the first
    third of the same run. A negative margin allows for so much on the wrong side: "not worse by more than".
    """

    part: Part
    says: str
    metric: str
    variant: str
    other: str = ""
    margin: float
    below: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """``shown`` are the metrics of the picture, as (metric, title, unit). ``scale`` says what hides the failure in a
    small run; it is printed only where it was not reproduced. ``confound`` says what else of a small run would show it:
    with one, seeing the failure proves nothing."""

    letter: str
    name: str
    claim: str
    variants: tuple[Variant, ...]
    checks: tuple[Check, ...]
    shown: tuple[tuple[str, str, str], ...]
    scale: str
    confound: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """``gaps``, ``[seeds]``: by how much the variant lies past ``other``, in the direction that the check asks for."""

    check: Check
    gaps: tuple[float, ...]

    @property
    def holds(self) -> bool:
        """On average, and in no seed the other way round by as much as the margin asks."""
        margin = self.check.margin
        return float(np.mean(self.gaps)) >= margin and min(self.gaps) >= min(margin, 0.0)

    @property
    def text(self) -> str:
        seen = ", ".join(f"{gap + 0.0:+.3g}" for gap in self.gaps)  # no "-0"
        return f"{self.check.says}: {seen} (asked {self.check.margin:+.3g}){'' if self.holds else ', not so'}"


@dataclass(frozen=True, slots=True)
class Verdict:
    failure: tuple[Finding, ...]
    cure: tuple[Finding, ...]
    confound: str = ""

    @property
    def failed(self) -> bool:
        return all(finding.holds for finding in self.failure)

    @property
    def failure_shown(self) -> str:
        return "not proven" if self.failed and self.confound else _how_far(self.failure)

    @property
    def cure_shown(self) -> str:
        """Empty where there is nothing to cure."""
        return _how_far(self.cure) if self.cure and self.failure_shown == "yes" else ""

    @property
    def text(self) -> str:
        if self.failure_shown == "yes":
            return {"": "shown", "yes": "shown and cured", "no": "failure shown, cure not"}.get(
                self.cure_shown, "failure shown, cured in part"
            )
        return {
            "no": "could not reproduce at this scale",
            "in part": "shown in part",
            "not proven": "seen, but not proven at this scale",
        }[self.failure_shown]


def _how_far(findings: Sequence[Finding]) -> str:
    held = [finding.holds for finding in findings]
    return "yes" if all(held) else "in part" if any(held) else "no"


def late(series: Series) -> float:
    """Mean of the last third (at least the last value)."""
    return float(np.mean(series.values[-max(series.values.size // 3, 1) :]))


def early(series: Series) -> float:
    """Mean of the first third (at least the first value)."""
    return float(np.mean(series.values[: max(series.values.size // 3, 1)]))


def judge(lesson: Lesson, curves: Curves) -> Verdict:
    """Raises LookupError where a run has not logged what a check reads."""
    found = [_finding(check, curves) for check in lesson.checks]
    return Verdict(
        tuple(finding for finding in found if finding.check.part == "failure"),
        tuple(finding for finding in found if finding.check.part == "cure"),
        lesson.confound,
    )


def _finding(check: Check, curves: Curves) -> Finding:
    mine = [_series(check.metric, run, check.variant) for run in curves[check.variant]]
    if check.other:
        theirs = [late(_series(check.metric, run, check.other)) for run in curves[check.other]]
    else:
        theirs = [early(series) for series in mine]
    sign = -1.0 if check.below else 1.0
    return Finding(check, tuple(sign * (late(a) - b) for a, b in zip(mine, theirs, strict=True)))


def _series(metric: str, run: Mapping[str, Series], variant: str) -> Series:
    if metric not in run:
        near = ", ".join(sorted(name for name in run if name.split("/")[0] == metric.split("/")[0])[:8])
        raise LookupError(f"the run of {variant} has logged no {metric}; of the same kind it has: {near or 'nothing'}")
    return run[metric]
