"""The lessons without their runs: rules on made-up curves, keys that resolve, and what is played in which order."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "lessons"))

import plays  # noqa: E402
from catalogue import LESSONS, PLAIN, STARTS  # noqa: E402
from lesson import SFT, Check, Lesson, Variant, early, judge, late  # noqa: E402
from low_reward import paid_only  # noqa: E402
from picture import draw, section  # noqa: E402
from plays import Play, RunFailed, StaleRun, folder_of, plan, play_all  # noqa: E402

from environments.task import Role, Task  # noqa: E402
from environments.trajectory import StopReason, Trajectory  # noqa: E402
from evaluation.curve import Series  # noqa: E402
from rewards.breakdown import RewardBreakdown  # noqa: E402
from training.config import GrpoConfig  # noqa: E402
from training.config_load import dump_config  # noqa: E402
from training.selection import select  # noqa: E402

VAL = "val/overall/accuracy"
BAD, GOOD = Variant(name="bad"), Variant(name="good")


def curve(*values: float) -> Series:
    return Series(np.arange(len(values)), np.asarray(values, dtype=float))


def lesson(*checks: Check) -> Lesson:
    return Lesson(
        letter="z", name="made up", claim="It fails.", variants=(BAD, GOOD), checks=checks,
        shown=((VAL, "Accuracy", "share"),), scale="too small",
    )  # fmt: skip


FAILS = Check(part="failure", says="it ends lower", metric=VAL, variant="bad", other="good", below=True, margin=0.1)
DECAYS = Check(part="failure", says="it falls", metric=VAL, variant="bad", below=True, margin=0.1)
CURED = Check(part="cure", says="it rises", metric=VAL, variant="good", margin=0.1)


def verdict(bad: Sequence[Sequence[float]], good: Sequence[Sequence[float]], *checks: Check) -> str:
    curves = {"bad": [{VAL: curve(*c)} for c in bad], "good": [{VAL: curve(*c)} for c in good]}
    return judge(lesson(*checks), curves).text


def test_means_of_thirds() -> None:
    assert late(curve(9, 9, 9, 9, 1, 3)) == 2
    assert early(curve(1, 3, 9, 9, 9, 9)) == 2
    assert late(curve(5, 7)) == 7  # never an empty third
    assert early(curve(4)) == late(curve(4)) == 4


@pytest.mark.parametrize(
    ("bad", "good", "says"),
    [
        ([[0.5, 0.4, 0.2]], [[0.5, 0.6, 0.8]], "shown and cured"),
        ([[0.5, 0.4, 0.2]], [[0.5, 0.5, 0.55]], "failure shown, cure not"),
        ([[0.5, 0.6, 0.75]], [[0.5, 0.6, 0.8]], "could not reproduce at this scale"),  # lower by half the margin
        ([[0.5, 0.4, 0.9]], [[0.5, 0.6, 0.8]], "could not reproduce at this scale"),  # the wrong way round
        # the mean over seeds is far enough, but one seed points the other way
        ([[0.5, 0.4, 0.0], [0.5, 0.5, 0.9]], [[0.5, 0.6, 0.8], [0.5, 0.6, 0.8]], "could not reproduce at this scale"),
        ([[0.5, 0.4, 0.0], [0.5, 0.5, 0.8]], [[0.5, 0.6, 0.8], [0.5, 0.6, 0.8]], "shown and cured"),
    ],
)
def test_verdicts(bad: list[list[float]], good: list[list[float]], says: str) -> None:
    assert verdict(bad, good, FAILS, CURED) == says


def test_one_failure_of_two_is_a_part() -> None:
    assert verdict([[0.8, 0.5, 0.2]], [[0.8]], FAILS, DECAYS) == "shown"
    assert verdict([[0.4, 0.4, 0.4]], [[0.8]], FAILS, DECAYS) == "shown in part"
    risen = Check(part="cure", says="it is at the top", metric=VAL, variant="good", other="bad", margin=0.7)
    assert verdict([[0.2]], [[0.5, 0.6, 0.8]], FAILS, CURED, risen) == "failure shown, cured in part"


def test_a_failure_that_something_else_would_show_too_proves_nothing() -> None:
    curves = {"bad": [{VAL: curve(0.2)}], "good": [{VAL: curve(0.8)}]}
    found = judge(replace(lesson(FAILS), confound="the bad one starts lower"), curves)
    assert found.failed
    assert found.failure_shown == "not proven"
    assert found.text == "seen, but not proven at this scale"


def test_a_run_is_compared_with_its_own_beginning() -> None:
    assert verdict([[0.8, 0.5, 0.2]], [[0.5]], DECAYS) == "shown"
    assert verdict([[0.2, 0.5, 0.8]], [[0.5]], DECAYS) == "could not reproduce at this scale"


def test_a_negative_margin_allows_for_so_much() -> None:
    keeps_up = Check(part="failure", says="keeps up", metric=VAL, variant="bad", other="good", margin=-0.05)
    assert verdict([[0.46]], [[0.5]], keeps_up) == "shown"
    assert verdict([[0.44]], [[0.5]], keeps_up) == "could not reproduce at this scale"


@given(
    bad=st.lists(st.floats(0, 1), min_size=1, max_size=9),
    good=st.lists(st.floats(0, 1), min_size=1, max_size=9),
    offset=st.floats(-5, 5),
)
def test_a_shift_of_both_runs_changes_no_gap(bad: list[float], good: list[float], offset: float) -> None:
    def gap(by: float) -> float:
        curves = {"bad": [{VAL: curve(*(v + by for v in bad))}], "good": [{VAL: curve(*(v + by for v in good))}]}
        return judge(lesson(FAILS), curves).failure[0].gaps[0]

    assert gap(offset) == pytest.approx(gap(0.0), abs=1e-9)


def test_a_metric_that_was_not_logged_is_named_with_its_neighbours() -> None:
    curves = {"bad": [{"val/hops1/accuracy": curve(1.0)}], "good": [{VAL: curve(1.0)}]}
    with pytest.raises(LookupError, match=r"bad has logged no val/overall/accuracy; .*val/hops1/accuracy"):
        judge(lesson(FAILS), curves)


@pytest.mark.parametrize("letter", sorted(LESSONS))
def test_every_key_of_a_lesson_still_means_something(letter: str, tmp_path: Path) -> None:
    found = plan([LESSONS[letter]], STARTS, [1], tmp_path)
    configs = {play.variant.name: play.config() for play in found}
    assert all(config.grpo.seed == 1 for config in configs.values())
    names = {variant.name for variant in LESSONS[letter].variants}
    assert names <= configs.keys()
    checks = LESSONS[letter].checks
    assert {check.variant for check in checks} | {check.other for check in checks if check.other} <= names
    assert any(check.part == "failure" for check in checks)
    # A variant that resolves to the plain run would be judged against itself.
    plain = plan([replace(LESSONS[letter], variants=(PLAIN,))], STARTS, [1], tmp_path)[-1].config()
    for variant in LESSONS[letter].variants:
        if variant != PLAIN and variant.script == PLAIN.script and not variant.goes_on:
            assert configs[variant.name].model_dump(exclude={"logger"}) != plain.model_dump(exclude={"logger"})


def test_the_runs_of_all_lessons_lie_apart_and_follow_what_they_start_from(tmp_path: Path) -> None:
    found = plan(LESSONS.values(), STARTS, [1, 2], tmp_path)
    folders = [play.folder for play in found]
    assert len(set(folders)) == len(folders)
    for place, play in enumerate(found):
        assert set(play.needs) <= set(folders[:place])
    assert [play.variant.name for play in found if play.folder == folder_of(PLAIN, "", 2, tmp_path)] == ["plain"]


def finish(play: Play) -> None:
    play.folder.mkdir(parents=True)
    dump_config(play.config(), play.folder / "config.yaml")
    (play.folder / "report.md").write_text("done")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that would have been processes, in order."""
    names: list[str] = []

    def run(play: Play) -> None:
        assert all((needed / "report.md").exists() for needed in play.needs)
        names.append(play.folder.name)
        finish(play)

    monkeypatch.setattr(plays, "play", run)
    return names


def all_plays(runs: Path, *extra: str) -> list[Play]:
    after = Variant(name="after", start="bad", overrides=("grpo.max_num_steps=3",))
    bad = replace(BAD, overrides=("grpo.max_num_steps=2",))
    return plan([replace(lesson(FAILS), variants=(after, bad, PLAIN))], STARTS, [1], runs, extra)


def go(plays: list[Play], fresh: bool = False) -> None:
    play_all(plays, side_by_side=2, fresh=fresh, say=lambda _: None)


def test_finished_runs_are_not_played_again(tmp_path: Path, played: list[str]) -> None:
    finish(all_plays(tmp_path)[0])
    go(all_plays(tmp_path))
    assert set(played) == {"bad-1", "plain-1", "after-1"}
    assert played[-1] == "after-1"  # it needs the weights of bad
    go(all_plays(tmp_path))
    assert len(played) == 3
    (tmp_path / "shared/plain-1/report.md").unlink()  # killed before its end
    (tmp_path / "shared/plain-1/config.yaml").unlink()
    (tmp_path / "shared/plain-1").rmdir()
    go(all_plays(tmp_path))
    assert played[3:] == ["plain-1"]


def test_a_finished_run_with_other_settings_is_no_result_of_this_lesson(tmp_path: Path, played: list[str]) -> None:
    go(all_plays(tmp_path))
    with pytest.raises(StaleRun, match=r"grpo\.val_period.*--fresh"):
        go(all_plays(tmp_path, "grpo.val_period=2"))
    go(all_plays(tmp_path, "grpo.val_period=2"), fresh=True)
    assert len(played) == 8  # the start too


def test_a_failing_run_ends_the_lesson_with_its_own_last_words(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys; sys.exit('no such luck')")
    start = replace(STARTS[SFT], script=str(script))
    with pytest.raises(RunFailed, match=r"exit code 1[^$]*no such luck"):
        go(plan([replace(lesson(FAILS), variants=(start,))], {}, [1], tmp_path))


SCRIPT = """
import json, pathlib, sys
given = dict(word.split("=", 1) for word in sys.argv if "=" in word)
folder = pathlib.Path(given["logger.log_dir"]) / given["logger.run_name"]
seen = sorted(path.name for path in folder.iterdir())
(folder / "seen.json").write_text(json.dumps({"argv": sys.argv[1:], "files": seen}))
"""


def test_a_run_goes_on_from_a_copy_and_starts_over_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    biased = Variant(name="biased", start="", script=str(script))
    again = Variant(name="again", start="", goes_on="biased", restart=True, script=str(script))
    made_up = replace(lesson(FAILS), variants=(again, biased))
    first, second = plan([made_up], {}, [1], tmp_path / "runs")
    assert [play.variant.name for play in (first, second)] == ["biased", "again"]  # needed first
    first.folder.mkdir(parents=True)
    (first.folder / "metrics.jsonl").write_text("one line")
    (first.folder / "report.md").write_text("done")

    def seen() -> tuple[bool, list[str]]:
        plays.play(second)
        found = json.loads((second.folder / "seen.json").read_text())
        return found["argv"][2:4] == ["--restart", "sft"], found["files"]

    restarts, files = seen()
    assert restarts
    assert "metrics.jsonl" in files
    assert "report.md" not in files  # or the copy would count as finished
    (second.folder / "restart.json").write_text("{}")  # the script's own mark; then it was killed
    (second.folder / "metrics.jsonl").write_text("two lines")
    restarts, files = seen()
    assert not restarts
    assert (second.folder / "metrics.jsonl").read_text() == "two lines"  # not copied anew
    assert (first.folder / "report.md").exists()


def test_the_picture_and_the_page(tmp_path: Path) -> None:
    curves = {
        "bad": [{VAL: curve(0.5, 0.4, 0.35)}, {VAL: curve(0.5, 0.4, 0.35)}],
        "good": [{VAL: curve(0.5, 0.5, 0.4)}, {}],
    }
    bad = replace(BAD, goes_on="good", restart=True, overrides=("grpo.seed=3",))
    made_up = replace(lesson(FAILS), variants=(bad, GOOD))
    draw(made_up, curves, tmp_path / "lessons/z.png")
    assert (tmp_path / "lessons/z.png").read_bytes().startswith(b"\x89PNG")
    curves["good"][1] = curves["good"][0]
    page = section(made_up, judge(made_up, curves), [1, 2], ["abc1234"], "lessons/z.png")
    assert "| bad | goes on from good, `--restart sft`; `grpo.seed=3` |\n| good | nothing |" in page
    assert "it ends lower: +0.05, +0.05 (asked +0.1), not so" in page
    assert "**Verdict** (seeds 1, 2; commit abc1234): could not reproduce at this scale: too small." in page


def test_the_filter_of_low_rewards_keeps_what_was_paid() -> None:
    def rollout(uid: str, pay: float) -> tuple[Trajectory, RewardBreakdown]:
        task = Task(role=Role.SOLVER, group_id="g")
        ended = Trajectory(
            uid=uid, task=task, token_ids=(1,), loss_mask=(1,), logprobs=(-0.5,),
            stop_reason=StopReason.SUBMITTED, policy_version=0,
        )  # fmt: skip
        return ended, RewardBreakdown({"correctness": pay}, {})

    played = [rollout(str(number), pay) for number, pay in enumerate((1.0, 0.0, 0.5, -1.0))]
    rollouts, pays = zip(*played, strict=True)
    given = (rollouts, pays, [0.5, -0.3, 0.2, -0.4], GrpoConfig())
    assert select(*given).kept == (0, 1, 2, 3)  # what training does
    assert paid_only(select)(*given).kept == (0, 2)


def test_the_command_names_an_unknown_lesson() -> None:
    command = [sys.executable, "benchmarks/lessons/run.py", "zz"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no lesson zz" in done.stderr
