"""Shapes of the Proposer's pay for a success rate p measured on n Solver rollouts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal


def one_minus_p(p: float, n: int) -> float:
    """1 - p (SSP, 2510.18821). Pays hard questions most; needs ``zero_if_unsolved``."""
    return 1.0 - p


def quadratic(p: float, n: int) -> float:
    """4 p (1 - p): learnability, 1 at one half. Low by the factor (1 - 1/n) on average."""
    return 4.0 * p * (1.0 - p)


def unbiased_quadratic(p: float, n: int) -> float:
    """4 n / (n - 1) p (1 - p): its mean over rollouts is 4 p (1 - p) of the true p. Up to n / (n - 1); 0 for n = 1."""
    return 4.0 * n / (n - 1) * p * (1.0 - p) if n > 1 else 0.0


def tent(p: float, n: int) -> float:
    """1 - 2 |p - 1/2| (R-Zero, 2508.05004; SCOPE, 2605.31433 with tau = 1/2)."""
    return 1.0 - 2.0 * abs(p - 0.5)


def spice(p: float, n: int) -> float:
    """exp(-(p (1 - p) - 1/4)^2 / (2 * 0.01)) (SPICE, 2510.24684): a Gaussian in the variance of the outcomes."""
    return math.exp(-((p * (1.0 - p) - 0.25) ** 2) / 0.02)


def flat_top(p: float, n: int, lo: float = 0.3, hi: float = 0.7, ramp: float = 0.25) -> float:
    """1 on [lo, hi], falling to 0 over ``ramp`` on both sides (SPADE, 2608.19197). Most tolerant of a noisy p."""
    return max(0.0, 1.0 - max(lo - p, p - hi, 0.0) / ramp)


def ssr(p: float, n: int, alpha: float = 0.8) -> float:
    """1 - (1 + alpha) p, and -alpha at p = 0 or 1. Negative for easy questions: less than an invalid one gets."""
    return -alpha if p in (0.0, 1.0) else 1.0 - (1.0 + alpha) * p


def regret(p: float, p_hint: float) -> float:
    """max(0, p_hint - p): what the evidence's ids are worth to the Solvers (SPADE's regret, 2608.19197).

    0 for a question that search alone solves, and for one that no hint helps with, be it vague or wrong.
    """
    return max(0.0, p_hint - p)


Shape = Literal["one_minus_p", "quadratic", "unbiased_quadratic", "tent", "spice", "flat_top", "ssr", "regret"]
SHAPES: Mapping[Shape, Callable[[float, int], float]] = {
    "one_minus_p": one_minus_p,
    "quadratic": quadratic,
    "unbiased_quadratic": unbiased_quadratic,
    "tent": tent,
    "spice": spice,
    "flat_top": flat_top,
    "ssr": ssr,
}
"""The shapes of p alone."""


def shape_value(shape: Shape, p: float, n: int, p_hint: float | None = None) -> float:
    """``p_hint``: the success rate with the evidence ids as a hint. Raises ValueError where regret lacks it."""
    if shape != "regret":
        return SHAPES[shape](p, n)
    if p_hint is None:
        raise ValueError("shape regret got no p_hint; roll out Solvers with the evidence as a hint")
    return regret(p, p_hint)
