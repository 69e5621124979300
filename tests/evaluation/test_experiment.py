from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evaluation import experiment
from training.config import Config

RECIPES = Path(__file__).resolve().parents[2] / "examples" / "configs"


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The configs that would have been run."""
    configs: list[Config] = []
    monkeypatch.setattr(experiment, "run_experiment", configs.append)
    return configs


def command(monkeypatch: pytest.MonkeyPatch, recipe: str, *arguments: str, preset: tuple[str, ...] = ()) -> None:
    monkeypatch.setattr(sys, "argv", ["run", "--config", str(RECIPES / recipe), *arguments])
    experiment.experiment_command("", *preset)


def test_a_preset_wins_over_the_recipe_and_gives_way_to_the_user(
    ran: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = ("selfplay.mode=fixed",)
    command(monkeypatch, "selfplay_quickstart.yaml", "data.train.data_path=t.jsonl", preset=fixed)
    command(monkeypatch, "selfplay_quickstart.yaml", "selfplay.mode=selfplay", preset=fixed)
    command(monkeypatch, "selfplay_quickstart.yaml")
    assert [config.selfplay.mode for config in ran] == ["fixed", "selfplay", "selfplay"]
    assert ran[0].data.train.data_path == "t.jsonl"


def test_fresh_deletes_the_run_folder_alone(ran: list[Config], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("old", "other"):
        (tmp_path / name).mkdir()
    here = (f"logger.log_dir={tmp_path}", "logger.run_name=old")
    command(monkeypatch, "selfplay_quickstart.yaml", *here)
    assert (tmp_path / "old").is_dir()
    command(monkeypatch, "selfplay_quickstart.yaml", "--fresh", *here)
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
