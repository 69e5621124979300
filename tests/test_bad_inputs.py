"""The table of bad inputs, row by row: what each gets, and what stays as it was."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from training.recipe import user_errors


def load() -> ModuleType:
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "bad_inputs.py"
    spec = importlib.util.spec_from_file_location("bad_inputs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bad_inputs"] = module  # its dataclasses look their own module up
    spec.loader.exec_module(module)
    return module


table = load()


@pytest.mark.parametrize("name", list(table.CASES))
def test_a_bad_input_gets_what_the_table_says(name: str, tmp_path: Path) -> None:
    outcome = table.CASES[name].run(tmp_path)
    assert outcome.gets
    assert outcome.intact


def test_a_full_disk_without_a_mount_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    for name in ("full disk, index", "full disk, checkpoint", "full disk, metrics"):
        folder = tmp_path / name.partition(", ")[2]
        folder.mkdir()
        table.CASES[name].run(folder)


def test_a_changed_row_fails_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    def changed(folder: Path) -> object:
        table.expect(False, f"left {folder.name}|something")
        return None

    def fine(folder: Path) -> object:
        return table.Outcome(f"{folder}/a: " + "no " * 100, "all")

    cases = {"bad": table.Case("x", changed), "good": table.Case("y", fine)}
    assert table.main(["--markdown"], cases) == 1
    out, err = capsys.readouterr()
    assert "CHANGED: Changed: left" in out
    assert "\\|something" in out
    assert "1 of 2 rows changed" in err
    good = next(line for line in out.splitlines() if line.startswith("| y"))
    assert good.startswith("| y | `` a: no no")
    assert "… `` | all |" in good
    assert table.main(["--only", "good"], cases) == 0
    assert table.main(["--only", "nothing like it"], cases) == 1


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FileNotFoundError("policy.model_name 'x': nothing there"), "error: policy.model_name 'x': nothing there"),
        (OSError(28, "No space left on device", "a/b"), "error: No space left on device: a/b"),
    ],
)
def test_an_error_of_the_user_is_one_line(error: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop, user_errors():
        raise error
    assert stop.value.code == 2
    assert capsys.readouterr().err == line + "\n"


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ValueError, match="invalid literal"), user_errors():
        int("x")
    with pytest.raises(KeyError), user_errors():
        raise KeyError("x")
