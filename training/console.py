"""What a run prints: a progress bar on a terminal, plain lines elsewhere (CI logs, files)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

# Control characters could move the cursor or recolour the terminal; bidi controls could reorder a line; a lone
# surrogate cannot be printed. Tab and newline stay.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# metric, label, format; a share is printed as a percentage
_KEY_NUMBERS = (
    ("loss/sft", "loss", ".3f"),
    ("reward/solver/total", "solver", ".3f"),
    ("reward/proposer/total", "proposer", ".3f"),
    ("proposals/valid_rate", "valid", ".0%"),
    ("proposals/true_rate", "true", ".0%"),
    ("proposals/hops2_share", "2-hop", ".0%"),
    ("groups/solver/kept", "groups", ".0f"),
    ("mismatch/solver/token_mult_prob_error", "mismatch", ".4f"),
    ("tokens/solver", "tok solver", ",.0f"),
    ("tokens/proposer", "tok proposer", ",.0f"),
    ("grad_norm", "grad", ".2f"),
)
_ACCURACY = re.compile(r"(?P<set>eval|val)/(?P<slice>hops\d+|overall)/accuracy")


def say(text: str) -> None:
    """A line of a script that has no run of its own."""
    print(printable(text), flush=True)


class RunConsole:
    """Text is shown as it is: mail text in it is never read as markup."""

    def __init__(self, total_steps: int | None = None, *, console: Console | None = None) -> None:
        self._console = console if console is not None else Console(highlight=False)
        self._total = total_steps
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def step(self, step: int, metrics: Mapping[str, float], *, phase: str, seconds: float | None) -> None:
        self.say(step_line(step, metrics, phase=phase, total=self._total, seconds=seconds))
        if phase == "train" and self._total is not None and self._console.is_terminal:
            self._bar(self._total, step)

    def say(self, text: str) -> None:
        # soft_wrap: a CI log keeps one line a step, however narrow it thinks it is
        self._console.print(Text(printable(text)), soft_wrap=True)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _bar(self, total: int, step: int) -> None:
        if self._progress is None or self._task is None:
            columns = (TextColumn("self-play"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._task = self._progress.add_task("self-play", total=total, completed=step)
            self._progress.start()
        self._progress.update(self._task, completed=step)


def step_line(
    step: int, metrics: Mapping[str, float], *, phase: str, total: int | None = None, seconds: float | None = None
) -> str:
    """``train   12/73  solver 0.412  valid 33%  3.9 s``: the key numbers that ``metrics`` holds, in a fixed order."""
    of = f"/{total}" if total is not None and phase == "train" else ""
    parts = [f"{phase:<5} {step:>4}{of}"]
    for name in sorted(metrics):
        if found := _ACCURACY.fullmatch(name):
            parts.append(f"{found['set']} {found['slice']} {metrics[name]:.1%}")
    parts += [f"{label} {metrics[name]:{form}}" for name, label, form in _KEY_NUMBERS if name in metrics]
    if metrics.get("faults/share"):
        parts.append(f"faults {metrics['faults/share']:.0%}" + (", no update" if metrics.get("faults/lost") else ""))
    if seconds is not None:
        parts.append(f"{seconds:.1f} s")
    return "  ".join(parts)


def printable(text: str) -> str:
    """``text`` without characters that would steer a terminal; each becomes one replacement character."""
    return _UNPRINTABLE.sub("\ufffd", text)
