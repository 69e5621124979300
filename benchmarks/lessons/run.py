"""Lessons that large runs paid for, repeated at the size of two cores:

    uv run benchmarks/lessons/run.py a          # play what is missing, judge, draw
    uv run benchmarks/lessons/run.py all --seeds 1 2
    uv run benchmarks/lessons/run.py table      # judge and draw what is there; writes docs/lessons.md

Every lesson is a claim, some runs of the small model that differ in a few keys, and a rule that makes a verdict of
their curves (``catalogue.py``). The runs of a seed start from the same SFT weights; runs that are finished are not
played again. ``key=value`` overrides go to every run, for a quick look: keep those in another folder (``--runs``).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from catalogue import LESSONS, STARTS
from lesson import Curves, Lesson, judge
from picture import draw, read_curves, row, section
from plays import ROOT, RunFailed, StaleRun, folder_of, plan, play_all

from evaluation.benchmark import write_text
from evaluation.report import markdown_table
from training.config_load import ConfigError

HEADER = ("lesson", "failure shown", "cure shown", "command", "seeds", "verdict")
_HEAD = """# Lessons

Failures that larger self-play runs met, and their cures, played with the small model on two cores. `run.py table`
writes this page from the stored runs. Each verdict is computed by a rule that stands beside its lesson, from means over
the last third of a curve, and a failure that did not show itself is called just that. A validation asks 120 questions,
so of two accuracies of one seed each a difference below .1 is what chance gives: no verdict is made of less.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", help=f"letters ({', '.join(LESSONS)}), all, or table")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs/lessons"))
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    parser.add_argument("--side-by-side", type=int, default=2, help="runs at once, one thread each")
    parser.add_argument("--fresh", action="store_true", help="delete the runs of these lessons first")
    args, overrides = parser.parse_known_args()
    try:
        lessons = _chosen(args.what)
        if args.what != ["table"]:
            plays = plan(lessons, STARTS, args.seeds, args.runs.absolute(), overrides)
            play_all(plays, side_by_side=args.side_by_side, fresh=args.fresh, say=print)
        report(lessons, args.seeds, args.runs, args.docs, whole=args.what == ["table"] or args.what == ["all"])
    except (StaleRun, RunFailed, ConfigError, LookupError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _chosen(what: Sequence[str]) -> list[Lesson]:
    if what in (["all"], ["table"]):
        return list(LESSONS.values())
    if unknown := [letter for letter in what if letter not in LESSONS]:
        raise LookupError(f"no lesson {', '.join(unknown)}; there are {', '.join(LESSONS)}, all and table")
    return [LESSONS[letter] for letter in what]


def report(lessons: Sequence[Lesson], seeds: Sequence[int], runs: Path, docs: Path, *, whole: bool) -> None:
    """Judge and draw each lesson for the seeds that are there; ``whole`` writes docs/lessons.md too."""
    rows: list[list[str]] = []
    sections: list[str] = []
    for lesson in lessons:
        played = [seed for seed in seeds if _is_played(lesson, seed, runs)]
        if not played:
            rows.append([f"{lesson.letter}. {lesson.name}", "", "", "", "", "not played yet"])
            continue
        curves = curves_of(lesson, played, runs)
        verdict = judge(lesson, curves)
        picture = Path("lessons") / f"{lesson.letter}.png"
        draw(lesson, curves, docs / picture)
        rows.append(row(lesson, verdict, played))
        sections.append(section(lesson, verdict, played, commits_of(lesson, played, runs), picture.as_posix()))
        print(f"{sections[-1]}\n")
    table = markdown_table(HEADER, rows)
    print(table, end="")
    if whole:
        write_text(docs / "lessons.md", "\n".join([_HEAD, table, *sections]))


def curves_of(lesson: Lesson, seeds: Sequence[int], runs: Path) -> Curves:
    return read_curves({v.name: [folder_of(v, lesson.letter, seed, runs) for seed in seeds] for v in lesson.variants})


def commits_of(lesson: Lesson, seeds: Sequence[int], runs: Path) -> list[str]:
    """Those of the code that played its runs, short."""
    folders = {folder_of(v, lesson.letter, seed, runs) for v in lesson.variants for seed in seeds}
    starts = [json.loads((folder / "run.json").read_text(encoding="utf-8"))["starts"][-1] for folder in folders]
    return sorted({(start["commit"] or "unknown")[:7] for start in starts})


def _is_played(lesson: Lesson, seed: int, runs: Path) -> bool:
    return all((folder_of(v, lesson.letter, seed, runs) / "report.md").exists() for v in lesson.variants)


if __name__ == "__main__":
    main()
