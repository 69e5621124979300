"""Start again from other weights with what was gathered, and what a resumed run thinks of its validations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from company_play import Place, load, place
from scripted_play import OneWeightEngine, board, half_right, written

from environments.task import Task
from environments.trajectory import Trajectory
from rewards.judge import RuleJudge
from training.checkpoint import CheckpointManager
from training.config import CheckpointingConfig
from training.engines.base import Sampling
from training.loop import checkpoints
from training.loop import run as run_loop
from training.recipe import Players
from training.restart import pending_restart, prepare_restart
from training.runlog import RunLog
from training.validation_policy import Standing, ValidationStop, fallen, standing


class Engine(OneWeightEngine):
    """Whose uids tell no resumed run from an unbroken one."""

    def rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
        made = super().rollout(tasks, sampling)
        self.rollouts.clear()  # they number the uids
        return made


@pytest.fixture(scope="module")
def firm() -> Place:
    return place()


def play(
    firm: Place, folder: Path, *overrides: str, steps: int = 4, weight: float = 0.5, accuracies: Sequence[float] = ()
) -> Engine:
    """``accuracies``: of the validations, in turn; without them it is the engine's weight."""
    settings = load(
        f"grpo.max_num_steps={steps}", "grpo.num_generations_per_prompt=4", "selfplay.proposer_prompts_per_step=3",
        "selfplay.hops={1: 1.0}", "selfplay.tool_variants=1", "selfplay.pool_share=0.5", "grpo.val_period=2",
        "grpo.val_at_start=true", "sft.max_num_steps=0", "checkpointing.save_period=2", "checkpointing.keep_top_k=null",
        f"logger.log_dir={folder.parent}", f"logger.run_name={folder.name}", *overrides,
    )  # fmt: skip
    engine = Engine(firm, firm.episode(settings), half_right(firm), weight=weight)
    measured = iter(accuracies)
    with RunLog(folder, {}) as log:
        run_loop(
            Players(cast("Any", engine), firm.chat, settings), board(firm), RuleJudge(), log,
            validate=lambda: {"val/overall/accuracy": next(measured, engine.weight)},
            benchmark=lambda step, label: log.write_metrics(step, {"eval/x": engine.weight}, phase="eval"),
        )  # fmt: skip
    return engine


def restart(firm: Place, folder: Path, source: str) -> None:
    prepare_restart(folder, checkpoints(load(), folder), source)


def start_weight(folder: Path) -> float:
    [first] = [
        json.loads(line)["metrics"]["eval/x"]
        for line in (folder / "metrics.jsonl").read_text().splitlines()
        if json.loads(line)["phase"] == "eval" and json.loads(line)["step"] == 0
    ]
    return first


@pytest.mark.parametrize("source", ["base", "sft"])
def test_the_weights_start_again_and_the_questions_stay(source: str, firm: Place, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    play(firm, folder)
    before = CheckpointManager(folder / "checkpoints").latest()
    assert before is not None
    assert before.loop_state["pool"]["tasks"]
    restart(firm, folder, source)
    assert {path.name for path in (folder / "attempts/001").iterdir()} >= {"metrics.jsonl", "samples", "checkpoints"}
    # "base" is what the config's model gives now; "sft" is what this run began with, whatever the config says now.
    engine = play(firm, folder, weight=0.25)
    assert start_weight(folder) == {"base": 0.25, "sft": 0.5}[source]
    begun = CheckpointManager(folder / "checkpoints").at(0)
    assert begun is not None
    assert begun.loop_state["pool"] == before.loop_state["pool"]
    assert not {"tripwire", "judged"} & set(begun.loop_state)
    drawn = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert next(line["metrics"]["pool/sorts"] for line in drawn if line["phase"] == "train") > 0
    assert engine.policy_version > 7


def test_another_run_gives_its_best_weights(firm: Place, tmp_path: Path) -> None:
    play(firm, tmp_path / "other", steps=6, accuracies=[0.1, 0.2, 0.9, 0.3], weight=0.125)
    best = CheckpointManager(tmp_path / "other/checkpoints").best()
    assert best is not None
    assert best.step == 4
    play(firm, tmp_path / "run")
    restart(firm, tmp_path / "run", str(tmp_path / "other"))
    play(firm, tmp_path / "run")
    assert start_weight(tmp_path / "run") == json.loads((best.policy / "state.json").read_text())[0]


def test_a_restart_that_is_killed_before_its_first_checkpoint_begins_alike(firm: Place, tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        play(firm, tmp_path / name)
        restart(firm, tmp_path / name, "sft")
    play(firm, tmp_path / "whole")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointManager, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            play(firm, tmp_path / "killed", weight=0.75)
    play(firm, tmp_path / "killed", weight=0.75)
    assert written(tmp_path / "killed") == written(tmp_path / "whole")


def test_a_second_restart_gets_a_folder_of_its_own(firm: Place, tmp_path: Path) -> None:
    for _ in range(2):
        play(firm, tmp_path, steps=2)
        restart(firm, tmp_path, "base")
    assert {path.name for path in (tmp_path / "attempts").iterdir()} == {"001", "002"}
    begin = pending_restart(tmp_path)
    assert begin is not None
    assert (begin.source, begin.policy) == ("base", None)


def test_what_cannot_be_restarted_moves_nothing(firm: Place, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no checkpoint, so there is nothing to restart"):
        restart(firm, tmp_path, "sft")
    play(firm, tmp_path, steps=2)
    with pytest.raises(ValueError, match="give base, sft, or the folder of a run with checkpoints"):
        restart(firm, tmp_path, "sfd")
    assert not (tmp_path / "attempts").exists()
    assert pending_restart(tmp_path) is None


# Resume or restart


@pytest.mark.parametrize(
    ("last", "best", "first", "higher", "parts"),
    [
        (0.8, 0.9, 0.5, True, []),
        (0.7, 0.9, 0.5, True, ["0.2 worse than 0.9 at step 4"]),
        (0.45, 0.5, 0.5, True, ["worse than 0.5 at step 0, before training"]),
        (0.3, 0.9, 0.5, True, ["0.6 worse than 0.9", "before training"]),
        (3.0, 2.0, 4.0, False, ["1 worse than 2 at step 4"]),
        (3.0, 2.95, 4.0, False, []),
    ],
)
def test_a_fall_is_measured_from_the_best_and_from_the_start(
    last: float, best: float, first: float, higher: bool, parts: list[str]
) -> None:
    settings = CheckpointingConfig(higher_is_better=higher, max_validation_drop=0.15)
    text = fallen(Standing((8, last), (4, best), (0, first)), settings)
    assert bool(text) == bool(parts)
    for part in parts:
        assert part in text


def test_validations_are_read_from_the_log_up_to_the_checkpoint(firm: Place, tmp_path: Path) -> None:
    play(firm, tmp_path, steps=6, accuracies=[0.5, 0.8, 0.6, 0.1])
    path, settings = tmp_path / "metrics.jsonl", CheckpointingConfig()
    assert standing(path, settings, 6) == Standing((6, 0.1), (2, 0.8), (0, 0.5))
    assert standing(path, settings, 5) == Standing((4, 0.6), (2, 0.8), (0, 0.5))
    assert standing(path, settings, 1) is None
    assert standing(path, CheckpointingConfig(metric_name="train:loss"), 6) is None


FALLING = [0.5, 0.9, 0.4]


def test_by_default_a_resumed_run_says_so_and_goes_on(firm: Place, tmp_path: Path) -> None:
    unbroken = play(firm, tmp_path / "unbroken", steps=6, accuracies=[*FALLING, 0.4])
    play(firm, tmp_path / "run", accuracies=FALLING)
    resumed = play(firm, tmp_path / "run", steps=6, accuracies=[0.4])
    assert resumed.weight == unbroken.weight
    assert "val:accuracy 0.4 at step 4 is 0.5 worse than 0.9 at step 2" in (tmp_path / "run/events.log").read_text()


def test_stop_leaves_everything_as_it_was(firm: Place, tmp_path: Path) -> None:
    play(firm, tmp_path, accuracies=FALLING)
    before = written(tmp_path)
    with pytest.raises(ValidationStop, match=r"not resumed: .*--restart sft"):
        play(firm, tmp_path, "checkpointing.validation_policy=stop", steps=6)
    trained = {name: data for name, data in written(tmp_path).items() if name.startswith("samples")}
    assert trained == {name: data for name, data in before.items() if name.startswith("samples")}


def test_restart_from_best_takes_the_weights_back_and_keeps_the_rest(firm: Place, tmp_path: Path) -> None:
    policy = "checkpointing.validation_policy=restart_from_best"
    play(firm, tmp_path, accuracies=FALLING)
    manager = CheckpointManager(tmp_path / "checkpoints")
    best, last = manager.at(2), manager.at(4)
    assert best is not None
    assert last is not None
    weights = {step: json.loads((manager.at(step).policy / "state.json").read_text()) for step in (2, 4)}  # type: ignore[union-attr]
    assert weights[2] != weights[4]
    play(firm, tmp_path, policy, steps=4)  # no step to do: what the run would go on with
    back = manager.at(4)
    assert back is not None
    assert json.loads((back.policy / "state.json").read_text()) == weights[2]
    assert back.loop_state["pool"] == last.loop_state["pool"]
    # The same value is not judged again: resumed once more, the steps since are kept.
    whole = play(firm, tmp_path, policy, steps=6, accuracies=[0.8])
    again = play(firm, tmp_path, policy, steps=6)
    assert again.weight == whole.weight
