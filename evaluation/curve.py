"""The learning curve: one picture from a run's metrics.jsonl. A panel whose metrics are absent is left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SFT = "sft"  # counts its own steps: never in these panels
_COLOURS = {"hops1": "#0072B2", "hops2": "#D55E00", "hops3": "#009E73", "overall": "#444444"}
_ROLE_COLOURS = {"solver": "#0072B2", "proposer": "#D55E00"}
_NAMES = {"hops1": "1 hop", "hops2": "2 hops", "hops3": "3 hops", "overall": "all"}
_SETS = {"val": "validation", "eval": "benchmark"}
_STYLES: dict[str, dict[str, Any]] = {
    "val": {"linestyle": "-", "linewidth": 1.6, "marker": "o", "markersize": 3.5},
    "eval": {"linestyle": ":", "linewidth": 1.2, "marker": "D", "markersize": 5},
}
_MARKS = 30  # up to so many points are marked one by one; more are drawn pale with their running mean on top


@dataclass(frozen=True, slots=True)
class Series:
    """One metric over steps, ``[n]`` each, by rising step."""

    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def read_series(metrics_path: Path) -> dict[str, Series]:
    """All metrics but those of the SFT stage; nulls are left out, a repeated step counts once (the later line).

    A half-written last line, as a killed run leaves it, is ignored. Raises ValueError on any other broken line.
    """
    points: dict[str, dict[int, float]] = {}
    lines = metrics_path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line or number == len(lines):
            continue
        try:
            record = json.loads(line)
            step, phase, metrics = int(record["step"]), record["phase"], dict[str, float | None](record["metrics"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{metrics_path}, line {number} is not a metrics line ({error}): {line[:80]!r}") from error
        if phase == SFT:
            continue
        for name, value in metrics.items():
            if value is not None:
                points.setdefault(name, {})[step] = float(value)
    return {
        name: Series(np.asarray(sorted(by_step)), np.asarray([by_step[step] for step in sorted(by_step)]))
        for name, by_step in points.items()
    }


def learning_curve(metrics_path: Path, picture: Path) -> bool:
    """Draws the PNG; False (and no file) where the metrics hold nothing to draw."""
    # matplotlib takes a second to import and is needed nowhere else; Agg draws without a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    series = read_series(metrics_path)
    panels = [panel for panel in _PANELS if panel.wanted(series)]
    if not panels:
        return False
    columns = min(2, len(panels))
    wide = len(panels) % columns  # an odd number of panels: the first one spans the width
    rows = (len(panels) + wide) // columns
    figure = Figure(figsize=(5.6 * columns, 3.4 * rows), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(rows, columns)
    axes: list[Axes] = []
    for place in range(len(panels)):
        row, column = divmod(place + wide if place else 0, columns)
        axes.append(figure.add_subplot(grid[row, :] if wide and place == 0 else grid[row, column]))
    last = max(int(series[name].steps[-1]) for panel in panels for name in panel.wanted(series))
    for axis, panel in zip(axes, panels, strict=True):
        house_axis(axis, panel.title, panel.unit, headroom=panel.headroom)
        longest = max(series[name].steps.size for name in panel.wanted(series))
        smooth = f" (bold: mean of {_window(longest)} steps)" if longest > _MARKS else ""
        axis.set_xlabel("step" + smooth, fontsize=9)
        first = min(0, *(int(series[name].steps[0]) for name in panel.wanted(series)))  # -1: before the SFT stage
        axis.set_xlim(first - 0.02 * max(last, 1), 1.02 * max(last, 1))
        panel.draw(axis, series)
        if panel.percent:
            axis.set_ylim(-3, 103)
        # above the axes: no curve ever runs through it
        legend = axis.legend(
            fontsize=8, frameon=False, ncols=3, borderpad=0.2, loc="lower left", bbox_to_anchor=(-0.01, 0.99)
        )
        legend.set_in_layout(False)
    write_picture(figure, picture)
    return True


def house_axis(axis: Axes, title: str, unit: str, *, headroom: float) -> None:
    """The look of every picture; ``headroom`` is the room in points between the axes and the title."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axis.set_title(title, loc="left", fontsize=10.5, fontweight="bold", pad=headroom)
    axis.set_ylabel(unit, fontsize=9)
    axis.set_xlabel("step", fontsize=9)
    axis.grid(axis="y", color="#dddddd", linewidth=0.7)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8.5)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))  # an offset would lie on the legend


def write_picture(figure: Figure, picture: Path) -> None:
    """The whole PNG or the old one."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    part = picture.with_name(f".{picture.name}.part")
    figure.savefig(part, format="png")
    part.replace(picture)


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    unit: str
    wanted: Callable[[Mapping[str, Series]], list[str]]
    draw: Callable[[Axes, Mapping[str, Series]], None]
    percent: bool = False
    headroom: float = 22.0  # points between the axes and the title: room for the legend


def draw_line(axis: Axes, series: Series, label: str, colour: str, scale: float = 1.0) -> None:
    """Up to 30 points are marked one by one; more are drawn pale with their running mean on top."""
    values = series.values * scale
    if values.size <= _MARKS:
        axis.plot(series.steps, values, color=colour, linewidth=1.6, marker="o", markersize=3.5, label=label)
        return
    axis.plot(series.steps, values, color=colour, linewidth=0.8, alpha=0.3)
    smooth = running_mean(values, _window(values.size))
    axis.plot(series.steps, smooth, color=colour, linewidth=1.8, label=label)


def _window(size: int) -> int:
    return max(3, size // 12) | 1  # odd


def running_mean(values: npt.NDArray[np.float64], window: int) -> npt.NDArray[np.float64]:
    """Centred mean over ``window`` (odd) values ``[n]``; at the ends over those that exist."""
    sums = np.convolve(values, np.ones(window), mode="same")
    counts = np.convolve(np.ones_like(values), np.ones(window), mode="same")
    return sums / counts


def _accuracies(series: Mapping[str, Series]) -> list[str]:
    names = [f"{kind}/{part}/accuracy" for part in _COLOURS for kind in ("val", "eval")]
    return [name for name in names if name in series]


def _draw_accuracy(axis: Axes, series: Mapping[str, Series]) -> None:
    """Validation as lines, the benchmark as diamonds with 95 % intervals."""
    for name in _accuracies(series):
        kind, part, _ = name.split("/")
        if part == "overall" and any(f"{kind}/{other}/accuracy" in series for other in ("hops1", "hops2", "hops3")):
            continue
        found = series[name]
        low, high = series.get(name + "_low"), series.get(name + "_high")
        spread = None
        if (
            kind == "eval"
            and low is not None
            and high is not None
            and low.steps.size == high.steps.size == found.steps.size
        ):
            spread = np.abs(np.stack([found.values - low.values, high.values - found.values])) * 100.0
        axis.errorbar(
            found.steps,
            found.values * 100.0,
            yerr=spread,
            color=_COLOURS[part],
            capsize=3,
            label=f"{_NAMES[part]}, {_SETS[kind]}",
            **_STYLES[kind],
        )


def _lines(
    names: Sequence[tuple[str, str, str]], *, offset: float = 0.0, scale: float = 1.0, from_zero: bool = False
) -> tuple[Callable[[Mapping[str, Series]], list[str]], Callable[[Axes, Mapping[str, Series]], None]]:
    """``names``: metric, label, colour. Drawn is ``(value + offset) * scale``."""

    def wanted(series: Mapping[str, Series]) -> list[str]:
        return [name for name, _, _ in names if name in series]

    def draw(axis: Axes, series: Mapping[str, Series]) -> None:
        for name, label, colour in names:
            if name in series:
                moved = Series(series[name].steps, series[name].values + offset)
                draw_line(axis, moved, label, colour, scale)
        if from_zero:
            axis.set_ylim(bottom=0)

    return wanted, draw


def _per_role(pattern: str) -> list[tuple[str, str, str]]:
    return [(pattern.format(role=role), role.capitalize(), colour) for role, colour in _ROLE_COLOURS.items()]


_SHARES = [
    ("proposals/valid_rate", "accepted", "#0072B2"),
    ("proposals/true_rate", "true, of these", "#009E73"),
    ("proposals/hops2_share", "2 hops, of these", "#D55E00"),
]
_PANELS = (
    _Panel("Held-out accuracy by hops", "right answers (%)", _accuracies, _draw_accuracy, percent=True, headroom=34.0),
    _Panel("Reward", "mean reward of a rollout", *_lines(_per_role("reward/{role}/total"))),
    _Panel("Proposals", "share (%)", *_lines(_SHARES, scale=100.0), percent=True),
    _Panel(
        "Mismatch of sampling and training",
        "token_mult_prob_error - 1 (%)",
        *_lines(_per_role("mismatch/{role}/token_mult_prob_error"), offset=-1.0, scale=100.0, from_zero=True),
    ),
    _Panel("Sampled tokens", "tokens a step", *_lines(_per_role("tokens/{role}"), from_zero=True)),
)
