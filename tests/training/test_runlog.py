from __future__ import annotations

import errno
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from environments.task import Role, Task
from environments.trajectory import StopReason, Submission, ToolEvent, Trajectory
from rewards.breakdown import RewardBreakdown
from training.config import Config
from training.console import RunConsole, printable, step_line
from training.runlog import RunLog, RunLogError
from training.samples import pick_per_role, sample_path, sample_step, trajectory_record
from training.wandb_run import WandbSettings, wandb_mode

CONFIG = {"grpo": {"seed": 3}, "selfplay": {"hops": {1: 0.5, 2: 0.5}}}


def quiet(terminal: bool = False) -> tuple[RunConsole, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=60, highlight=False, color_system=None)
    return RunConsole(5, console=console), out


def log_in(folder: Path, **settings: Any) -> RunLog:
    return RunLog(folder, settings.pop("config", CONFIG), console=quiet()[0], **settings)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def test_metrics_hold_step_phase_and_values_and_no_time(tmp_path: Path) -> None:
    with log_in(tmp_path) as log:
        log.step(1, {"reward/solver/total": 0.25, "groups/solver/kept": 4}, seconds={"total": 1.23456, "rollout": 1.0})
        log.write_metrics(1, {"eval/overall/accuracy": 0.5}, phase="eval")
    assert lines_of(tmp_path / "metrics.jsonl") == [
        {"step": 1, "phase": "train", "metrics": {"reward/solver/total": 0.25, "groups/solver/kept": 4}},
        {"step": 1, "phase": "eval", "metrics": {"eval/overall/accuracy": 0.5}},
    ]
    assert lines_of(tmp_path / "timings.jsonl") == [
        {"step": 1, "phase": "train", "seconds": {"total": 1.2346, "rollout": 1.0}}
    ]


def test_numbers_that_are_not_finite_become_null_and_are_counted(tmp_path: Path) -> None:
    with log_in(tmp_path) as log:
        log.write_metrics(2, {"grad_norm": math.nan, "lr": 1e-3, "loss/total": -math.inf})
    [line] = lines_of(tmp_path / "metrics.jsonl")
    assert line["metrics"] == {"grad_norm": None, "lr": 1e-3, "loss/total": None, "log/non_finite": 2}
    assert "grad_norm, loss/total" in (tmp_path / "events.log").read_text()


def write_steps(log: RunLog, steps: range) -> None:
    for step in steps:
        log.step(step, {"reward/solver/total": step / 7}, seconds={"total": time.perf_counter()})
        log.write_samples(step, [{"role": "solver", "uid": f"{step}"}])
        if step % 2 == 0:
            log.write_metrics(step, {"val/overall/accuracy": 0.1 * step}, phase="val")


def test_a_resumed_run_leaves_the_metrics_of_an_unbroken_one(tmp_path: Path) -> None:
    with log_in(tmp_path / "whole") as log:
        log.write_metrics(40, {"loss/sft": 2.0}, phase="sft")
        write_steps(log, range(1, 8))
    with log_in(tmp_path / "broken") as log:
        log.write_metrics(40, {"loss/sft": 2.0}, phase="sft")
        write_steps(log, range(1, 7))
    with (tmp_path / "broken" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "pha')  # killed while writing
    with log_in(tmp_path / "broken") as log:
        assert log.truncate_after(4) == 3  # train 5, train 6, val 6; the torn line went before
        assert sorted(path.name for path in (tmp_path / "broken" / "samples").iterdir())[-1] == "step_000004.jsonl"
        write_steps(log, range(5, 8))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert (whole / "metrics.jsonl").read_bytes() == (broken / "metrics.jsonl").read_bytes()
    assert [line["step"] for line in lines_of(broken / "timings.jsonl")] == [1, 2, 3, 4, 5, 6, 7]
    assert {p.name: p.read_bytes() for p in (whole / "samples").iterdir()} == {
        p.name: p.read_bytes() for p in (broken / "samples").iterdir()
    }
    assert len(json.loads((broken / "run.json").read_text())["starts"]) == 2


def test_sft_counts_its_own_steps(tmp_path: Path) -> None:
    with log_in(tmp_path) as log:
        for step in (10, 20, 30):
            log.write_metrics(step, {"loss/sft": 1.0}, phase="sft")
        write_steps(log, range(1, 4))
        assert log.truncate_after(1) == 3  # train 2, val 2, train 3
        assert [(line["phase"], line["step"]) for line in lines_of(log.metrics_path)] == [
            ("sft", 10),
            ("sft", 20),
            ("sft", 30),
            ("train", 1),
        ]
        assert log.truncate_after(20, phase="sft") == 2
        assert [(line["phase"], line["step"]) for line in lines_of(log.metrics_path)] == [("sft", 10), ("sft", 20)]
        assert list((tmp_path / "samples").iterdir()) == []


def test_truncating_a_fresh_or_whole_log_drops_nothing(tmp_path: Path) -> None:
    with log_in(tmp_path) as log:
        assert log.truncate_after(0) == 0
        write_steps(log, range(1, 3))
        before = log.metrics_path.read_bytes()
        assert log.truncate_after(2) == 0
        assert log.metrics_path.read_bytes() == before


@pytest.mark.parametrize("line", ["not json\n", "[1]\n", '{"step": 1}\n', '{"step": "x", "phase": "train"}\n', "\n"])
def test_a_foreign_line_is_named(tmp_path: Path, line: str) -> None:
    with log_in(tmp_path) as log:
        write_steps(log, range(1, 2))
        with log.metrics_path.open("a") as file:
            file.write(line)
        with pytest.raises(RunLogError, match=r"metrics\.jsonl:2 is not a log line"):
            log.truncate_after(1)


def test_a_kill_at_any_moment_leaves_whole_lines_after_reopening(tmp_path: Path) -> None:
    script = (
        "import sys, itertools; from pathlib import Path; from training.runlog import RunLog\n"
        "log = RunLog(Path(sys.argv[1]), {})\n"
        "for step in itertools.count(1): log.write_metrics(step, {'reward/solver/total': step / 7})\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.DEVNULL)
    path = tmp_path / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size > 2000):
        assert process.poll() is None, "the writer ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with log_in(tmp_path):
        assert [line["step"] for line in lines_of(path)] == list(range(1, len(lines_of(path)) + 1))


def test_a_full_disk_is_an_error_that_says_what_to_do_and_spoils_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with log_in(tmp_path) as log:
        log.write_metrics(1, {"lr": 1.0})
        before = log.metrics_path.read_bytes()

        def full(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(RunLogError, match=r"metrics\.jsonl.*No space left.*Free space"):
            log.write_metrics(2, {"lr": 1.0})
        with pytest.raises(RunLogError, match="step_000002"):
            log.write_samples(2, [{"role": "solver"}])
        monkeypatch.undo()
        assert log.metrics_path.read_bytes() == before
        assert list((tmp_path / "samples").iterdir()) == []
        log.write_metrics(2, {"lr": 1.0})
        assert len(lines_of(log.metrics_path)) == 2


def test_the_config_is_kept_and_a_changed_one_is_reported(tmp_path: Path) -> None:
    with log_in(tmp_path):
        pass
    assert not (tmp_path / "events.log").exists()
    with log_in(tmp_path, config={"grpo": {"seed": 4}, "selfplay": {"hops": {1: 0.5, 2: 0.5}}}):
        pass
    events = (tmp_path / "events.log").read_text()
    assert "grpo.seed" in events
    assert "selfplay" not in events


def test_the_log_of_a_config_resumes_without_a_warning(tmp_path: Path) -> None:
    config = Config.model_validate({"logger": {"log_dir": str(tmp_path), "run_name": "a", "wandb_enabled": False}})
    for _ in range(2):
        with RunLog.of(config) as log:
            assert log.folder == tmp_path / "a"
    assert not (tmp_path / "a" / "events.log").exists()


# Samples


def trajectory(role: Role = Role.SOLVER, **fields: Any) -> Trajectory:
    task = Task(role=role, group_id="g1", hops=2, question="Who?", answer="Ann", evidence=("m1", "m2"))
    values: dict[str, Any] = {
        "uid": "u1",
        "task": task,
        "token_ids": (5, 6, 7, 8),
        "loss_mask": (0, 1, 1, 0),
        "logprobs": (0.0, -0.1, -0.2, 0.0),
        "stop_reason": StopReason.SUBMITTED,
        "policy_version": 3,
        "turn_starts": (1,),
        "events": (ToolEvent(1, "search_keyword", {"keywords": ["x"], "limit": math.nan}, "", ("m1",)),),
        "opened": ("m1",),
        "submission": Submission("Ann", ("m1",)),
        "messages": ({"role": "user", "content": "\ud800 [bold]Who?[/bold]\u2028"},),
    }
    return Trajectory(**(values | fields))


def test_a_record_holds_the_whole_rollout(tmp_path: Path) -> None:
    breakdown = RewardBreakdown({"correct": 1.0, "evidence": 0.1}, {"correct": True, "p": math.inf, "why": "match"})
    with log_in(tmp_path) as log:
        [record] = lines_of(log.write_samples(7, [trajectory_record(trajectory(), breakdown, -0.5)]))
    assert record["reward"] == {
        "total": pytest.approx(1.1),
        "components": {"correct": 1.0, "evidence": 0.1},
        "labels": {"correct": True, "p": None, "why": "match"},
        "masked": False,
    }
    assert record["tokens"] == {"total": 4, "sampled": 2, "turns": 1}
    assert record["submission"] == {"question": "", "answer": "Ann", "evidence": ["m1"]}
    assert record["task"]["evidence"] == ["m1", "m2"]
    assert record["events"][0] == {
        "turn": 1,
        "name": "search_keyword",
        "arguments": {"keywords": ["x"], "limit": None},
        "error": "",
        "shown_ids": ["m1"],
    }
    assert record["messages"] == [{"role": "user", "content": "\ud800 [bold]Who?[/bold]\u2028"}]
    assert (record["role"], record["stop_reason"], record["advantage"]) == ("solver", "submitted", -0.5)


def test_a_rollout_without_submission_or_advantage(tmp_path: Path) -> None:
    record = trajectory_record(trajectory(submission=None), RewardBreakdown({}, {}, masked=True), None)
    assert record["submission"] is None
    assert record["advantage"] is None


@given(st.lists(st.sampled_from(["solver", "proposer"]), max_size=40), st.integers(0, 10))
def test_the_cap_holds_for_each_role_and_keeps_the_order(roles: list[str], cap: int) -> None:
    records: list[dict[str, object]] = [{"role": role, "n": n} for n, role in enumerate(roles)]
    kept = pick_per_role(records, cap)
    for role in ("solver", "proposer"):
        assert sum(record["role"] == role for record in kept) == min(cap, roles.count(role))
    numbers = [record["n"] for record in kept]
    assert numbers == sorted(set(numbers))  # type: ignore[type-var]
    assert pick_per_role(records, -1) == records


def test_the_cap_spreads_over_the_step() -> None:
    kept = pick_per_role([{"role": "solver", "n": n} for n in range(12)], 3)
    assert [record["n"] for record in kept] == [0, 4, 8]


def test_sample_files_are_named_by_step(tmp_path: Path) -> None:
    assert sample_path(tmp_path, 123).name == "step_000123.jsonl"
    assert sample_step(sample_path(tmp_path, 123)) == 123
    assert sample_step(tmp_path / "step_x.jsonl") is None
    assert sample_step(tmp_path / "notes.txt") is None


# Console


def test_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    console, out = quiet()
    with RunLog(tmp_path, CONFIG, console=console) as log:
        metrics = {"reward/solver/total": 0.4, "proposals/valid_rate": 0.333, "tokens/solver": 12345.0, "other": 9.0}
        log.step(3, metrics, seconds={"total": 3.94})
        log.step(3, {"eval/hops2/accuracy": 0.5, "eval/hops1/accuracy": 0.95}, phase="eval")
    assert out.getvalue().split("\n") == [
        "train    3/5  solver 0.400  valid 33%  tok solver 12,345  3.9 s",
        "eval     3  eval hops1 95.0%  eval hops2 50.0%",
        "",
    ]


def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    console, out = quiet(terminal=True)
    with RunLog(tmp_path, CONFIG, console=console) as log:
        log.step(3, {"reward/solver/total": 0.4})
    assert "3/5" in out.getvalue().split("solver 0.400", 1)[1]


def test_printed_mail_text_is_neither_markup_nor_control(tmp_path: Path) -> None:
    console, out = quiet(terminal=True)
    with RunLog(tmp_path, CONFIG, console=console) as log:
        log.say("[bold red]x[/] \x1b[2J\x07 \u202edlrow \ud800")
    assert out.getvalue() == "[bold red]x[/] \ufffd[2J\ufffd \ufffddlrow \ufffd\n"
    assert "\x1b" not in (tmp_path / "events.log").read_text()


def test_an_event_is_one_line(tmp_path: Path) -> None:
    with log_in(tmp_path) as log:
        log.event("a\nb\rc")
    assert len((tmp_path / "events.log").read_text().split("\n")) == 2


@given(st.text(alphabet=st.characters()))
def test_printable_text_can_be_encoded_and_keeps_its_length(text: str) -> None:
    clean = printable(text)
    clean.encode("utf-8")
    assert len(clean) == len(text)
    assert not any(ord(c) < 32 and c not in "\n\t" for c in clean)


def test_a_line_survives_numbers_that_are_not_finite() -> None:
    assert step_line(1, {"grad_norm": math.nan, "proposals/valid_rate": math.inf}, phase="train") == (
        "train    1  valid inf%  grad nan"
    )


# W&B


class FakeRun:
    def __init__(self, fail_at: int | None) -> None:
        self.logged: list[dict[str, float]] = []
        self.finished = False
        self._fail_at = fail_at

    def define_metric(self, name: str, **_: Any) -> None:
        pass

    def log(self, values: dict[str, float]) -> None:
        if self._fail_at is not None and len(self.logged) >= self._fail_at:
            raise ConnectionError("no route")
        self.logged.append(values)

    def finish(self) -> None:
        self.finished = True


def fake_wandb(monkeypatch: pytest.MonkeyPatch, *, fail_at: int | None = None, broken: bool = False) -> list[Any]:
    seen: list[Any] = []

    def init(**arguments: Any) -> FakeRun:
        if broken:
            raise RuntimeError("api key is wrong")
        run = FakeRun(fail_at)
        seen.append((arguments, run))
        return run

    module = types.SimpleNamespace(init=init, Settings=lambda **kwargs: kwargs)
    monkeypatch.setitem(sys.modules, "wandb", module)  # type: ignore[arg-type]
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    return seen


def test_wandb_is_offline_without_a_key_and_gets_the_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = fake_wandb(monkeypatch)
    for _ in range(2):
        with log_in(tmp_path, wandb=WandbSettings(name="n")) as log:
            log.write_metrics(1, {"lr": 0.5, "grad_norm": math.nan})
            log.write_metrics(9, {"loss/sft": 2.0}, phase="sft")
    (first, run), (second, _) = seen
    assert first["mode"] == "offline"
    assert first["id"] == second["id"]
    assert run.logged == [{"lr": 0.5, "log/non_finite": 1, "step": 1}, {"sft/loss/sft": 2.0, "step": 9}]
    assert run.finished


@pytest.mark.parametrize("broken", [True, False])
def test_a_failing_wandb_warns_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    fake_wandb(monkeypatch, fail_at=1, broken=broken)
    with log_in(tmp_path, wandb=WandbSettings()) as log:
        for step in range(1, 5):
            log.write_metrics(step, {"lr": 0.5})
    assert len(lines_of(tmp_path / "metrics.jsonl")) == 4
    assert (tmp_path / "events.log").read_text().count("Weights & Biases is off") == 1


@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        ({}, "offline"),
        ({"WANDB_API_KEY": ""}, "offline"),
        ({"WANDB_API_KEY": "k"}, "online"),
        ({"WANDB_API_KEY": "k", "WANDB_MODE": "offline"}, "offline"),
        ({"WANDB_MODE": "online"}, "offline"),
        ({"WANDB_MODE": "disabled", "WANDB_API_KEY": "k"}, "disabled"),
    ],
)
def test_wandb_never_needs_to_ask_for_a_key(environment: dict[str, str], mode: str) -> None:
    assert wandb_mode(environment) == mode
