"""A lesson's picture and its place in the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path

from lesson import SELF_PLAY, Curves, Lesson, Variant, Verdict

from evaluation.curve import Series, draw_line, house_axis, read_series, write_picture

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")


def read_curves(folders: Mapping[str, Sequence[Path]]) -> Curves:
    """``folders``: variant to its run of each seed. Raises FileNotFoundError where a run has no metrics yet."""
    return {name: [read_series(run / "metrics.jsonl") for run in runs] for name, runs in folders.items()}


def draw(lesson: Lesson, curves: Curves, picture: Path) -> None:
    """One panel a metric of ``lesson.shown``, one colour a variant, one line a seed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(lesson.shown), 3.6), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    for place, (metric, title, unit) in enumerate(lesson.shown):
        axis = figure.add_subplot(1, len(lesson.shown), place + 1)
        house_axis(axis, title, unit, headroom=10.0)
        for name, seed, colour, series in _lines(lesson, curves, metric):
            draw_line(axis, series, name if seed == 0 else "", colour)
        if place == 0:
            axis.legend(fontsize=8, frameon=False)
    write_picture(figure, picture)


def _lines(lesson: Lesson, curves: Curves, metric: str) -> Iterator[tuple[str, int, str, Series]]:
    for variant, colour in zip(lesson.variants, cycle(_COLOURS), strict=False):
        for seed, run in enumerate(curves[variant.name]):
            if metric in run:
                yield variant.name, seed, colour, run[metric]


def section(lesson: Lesson, verdict: Verdict, seeds: Sequence[int], commits: Sequence[str], picture: str) -> str:
    """The lesson's part of the page: claim, picture, every check with its numbers, and the verdict."""
    why = verdict.confound if verdict.failed else lesson.scale
    played = f"seeds {', '.join(map(str, seeds))}; commit {', '.join(commits)}"
    lines = [
        f"## ({lesson.letter}) {lesson.name}\n",
        f"{lesson.claim}\n",
        f"![{lesson.name}]({picture})\n",
        "| run | differs from the lessons' recipe by |\n|---|---|",
        *(f"| {variant.name} | {_difference(variant)} |" for variant in lesson.variants),
        "",
        *(f"- {finding.check.part}: {finding.text}" for finding in (*verdict.failure, *verdict.cure)),
        "",
        f"**Verdict** ({played}): {verdict.text}{f': {why}' if why else ''}.",
        "",
    ]
    return "\n".join(lines)


def _difference(variant: Variant) -> str:
    told = [f"`{override}`" for override in variant.overrides]
    if variant.script != SELF_PLAY:
        told.insert(0, f"played by `{variant.script}`")
    if variant.goes_on:
        told.insert(0, f"goes on from {variant.goes_on}" + (", `--restart sft`" if variant.restart else ""))
    return "; ".join(told) or "nothing"


def row(lesson: Lesson, verdict: Verdict, seeds: Sequence[int]) -> list[str]:
    return [
        f"{lesson.letter}. {lesson.name}",
        verdict.failure_shown,
        verdict.cure_shown,
        f"`uv run benchmarks/lessons/run.py {lesson.letter}`",
        ", ".join(map(str, seeds)),
        verdict.text,
    ]
