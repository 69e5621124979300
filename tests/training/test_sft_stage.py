"""The dual-prompt stage with the small model on a small company."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from company_play import ROOT, load

from corpus_index.backends import open_memory_index
from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import CompanySpec
from environments.chat_rows import ChatRow, row_of, save_rows
from environments.task import Role, Task
from environments.trajectory import StopReason, ToolEvent, Trajectory
from training.checkpoint import CheckpointManager
from training.config import Config
from training.engines.base import Sampling
from training.engines.local import LocalEngine
from training.recipe import Players, make_players
from training.runlog import SFT, RunLog
from training.sft.agentic import agentic_set
from training.sft.general import general_set, held_out_answers, load_prompts
from training.sft.retention import RetentionStop, breach, mean_logprob
from training.sft.stage import played_metrics, sft_stage

INDEX = open_memory_index(Company(CompanySpec(seed=3, projects=8)).documents())
FAST = (
    "policy.generation.max_new_tokens=24", "engine.num_threads=1", "engine.rollout_batch_size=32",
    "sft.recipe=dual_prompt", "sft.max_num_steps=4", "sft.companies=1", "sft.learning_rate=1e-3", "sft.warmup_steps=0",
    "sft.trajectories_per_step=4", "sft.val_period=2", "sft.rollouts=2",
    "sft.general.prompts=company:seed=5,projects=8",
    "sft.general.max_prompts=20", "sft.general.held_out=6", "sft.agentic.samples=16", "sft.agentic.held_out=8",
    "checkpointing.save_period=1", "logger.wandb_enabled=false",
)  # fmt: skip


def config(folder: Path, *overrides: str) -> Config:
    model = ROOT / "examples/models/futari-1m"
    return load(*FAST, f"policy.model_name={model}", f"logger.log_dir={folder}", "logger.run_name=run", *overrides)


def players(settings: Config) -> Players:
    return make_players(settings, INDEX)


def stage(settings: Config, *, saved: bool = False) -> Players:
    made = players(settings)
    with RunLog.of(settings) as log:
        manager = CheckpointManager(log.folder / "sft_checkpoints", keep_top_k=None, save_period=1) if saved else None
        sft_stage(made, log, INDEX, manager)
    return made


def weights(made: Players) -> dict[str, Any]:
    assert isinstance(made.engine, LocalEngine)
    return made.engine.policy.model.state_dict()


def lines(settings: Config) -> list[dict[str, Any]]:
    path = Path(settings.logger.log_dir) / "run" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def values(settings: Config, name: str) -> list[float]:
    return [line["metrics"][name] for line in lines(settings) if name in line["metrics"]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Players]:
    settings = config(tmp_path_factory.mktemp("whole"))
    return settings, stage(settings, saved=True)


def test_a_stage_trains_both_sets_and_measures_them_apart(trained: tuple[Config, Players]) -> None:
    settings, _ = trained
    assert {line["phase"] for line in lines(settings)} == {SFT}
    assert len(values(settings, "sft/loss")) == 4
    assert len(values(settings, "sft/general/val_loss")) == 3  # before, and after steps 2 and 4
    drops = values(settings, "sft/general/drop")
    assert drops[0] == 0.0
    losses = values(settings, "sft/general/val_loss")
    assert drops[1:] == pytest.approx([losses[1] - losses[0], losses[2] - losses[0]])
    assert values(settings, "sft/agentic/val_loss")[0] > 0
    for role in Role:
        assert all(0 <= rate <= 1 for rate in values(settings, f"sft/{role}/submitted_rate"))
    tokens = [line["metrics"] for line in lines(settings) if "sft/general_share" in line["metrics"]]
    share = sum(m["sft/general_share"] * m["sft/trained_tokens"] for m in tokens)
    assert share / sum(m["sft/trained_tokens"] for m in tokens) == pytest.approx(0.5, abs=0.15)


def test_a_stage_leaves_its_pages_in_the_run_folder(trained: tuple[Config, Players]) -> None:
    folder = Path(trained[0].logger.log_dir) / "run"
    for name in ("general", "proposer", "solver"):
        assert 'class="masked"' in (folder / f"sft_sample_{name}.html").read_text()
    assert "| agentic | tool result | 0 |" in (folder / "sft_tokens.md").read_text()
    assert "set A: 14 answers, gone through" in (folder / "events.log").read_text()
    for step, submitted in zip((0, 2, 4), values(trained[0], "sft/solver/submitted_rate"), strict=True):
        rollouts = [json.loads(line) for line in (folder / f"sft_rollouts_{step:06d}.jsonl").read_text().splitlines()]
        solvers = [each for each in rollouts if each["role"] == "solver"]
        assert {each["role"] for each in rollouts} == {"proposer", "solver"}
        assert sum(each["stop_reason"] == "submitted" for each in solvers) / len(solvers) == submitted
        assert all(each["messages"][0]["role"] == "system" for each in rollouts)


def test_a_killed_stage_goes_on_and_ends_alike(trained: tuple[Config, Players], tmp_path: Path) -> None:
    settings = config(tmp_path)
    stage(settings, saved=True)
    folder = tmp_path / "run" / "sft_checkpoints"
    for step in (3, 4):
        CheckpointManager(folder).at(step)
        for path in sorted((folder / f"step_{step:06d}").rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (folder / f"step_{step:06d}").rmdir()
    again = stage(settings, saved=True)
    assert lines(settings) == lines(trained[0])
    ours, whole = (weights(made) for made in (again, trained[1]))
    assert all((ours[name] == whole[name]).all() for name in whole)


def test_own_answers_are_sampled_ids_without_a_system_prompt(tmp_path: Path) -> None:
    settings = config(tmp_path)
    made = players(settings)
    answers = general_set(settings, made.engine, made.chat, tmp_path, print)
    assert len(answers) == 20
    for sample in answers:
        trajectory = sample.trajectory
        user = {"role": "user", "content": trajectory.task.question}
        prompt = made.chat.prompt_ids([user])
        assert list(trajectory.token_ids[: len(prompt)]) == prompt
        assert trajectory.loss_mask == (0,) * len(prompt) + (1,) * (len(trajectory.token_ids) - len(prompt))
        assert made.chat.text(trajectory.token_ids[len(prompt) :]) == trajectory.messages[-1]["content"]
    sampled = (tmp_path / "general_answers.jsonl").read_bytes()
    kept = general_set(settings, made.engine, made.chat, tmp_path, print)
    assert [s.trajectory.token_ids for s in kept] == [s.trajectory.token_ids for s in answers]
    (tmp_path / "general_answers.jsonl").unlink()
    general_set(settings, made.engine, made.chat, tmp_path, print)
    assert (tmp_path / "general_answers.jsonl").read_bytes() == sampled
    train, held = held_out_answers(answers, settings)
    asked = [{sample.trajectory.task.question for sample in part} for part in (train, held)]
    assert (len(asked[0]), len(asked[1])) == (14, 6)
    assert not asked[0] & asked[1]
    assert made.engine.rollout([], Sampling()) == []  # the engine has its own episode back
    assert mean_logprob(made.engine, held) < 0


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "p.jsonl",
            '{"prompt": "a", "language": "en"}\n{"prompt": "b", "language": "ja"}\n\n',
            {("a", "en"), ("b", "ja")},
        ),
        ("p.txt", "a\n\nb\na\n", {("a", ""), ("b", "")}),
    ],
)
def test_prompts_come_from_lines_or_json(tmp_path: Path, name: str, text: str, expected: set[tuple[str, str]]) -> None:
    (tmp_path / name).write_text(text)
    keys = ("sft.general.max_prompts=null", "sft.general.held_out=1")
    prompts = load_prompts(config(tmp_path, f"sft.general.prompts={tmp_path / name}", *keys))
    assert {(prompt.prompt, prompt.language) for prompt in prompts} == expected
    with pytest.raises(ValueError, match="2 different prompts and"):
        load_prompts(config(tmp_path, f"sft.general.prompts={tmp_path / name}", keys[0], "sft.general.held_out=2"))


def test_the_shipped_prompts_are_two_hundred_in_four_languages(tmp_path: Path) -> None:
    shipped = ROOT / "examples/data/general_prompts.jsonl"
    prompts = load_prompts(config(tmp_path, f"sft.general.prompts={shipped}", "sft.general.max_prompts=null"))
    assert len(prompts) == 200
    assert {prompt.language for prompt in prompts} == {"en", "ja", "de", "fr"}


def test_rows_of_a_file_are_trained_as_rollouts_were_recorded(tmp_path: Path) -> None:
    made = players(config(tmp_path))
    demonstrated = agentic_set(made.config, made.chat).train
    rows = [row_of(sample.trajectory, labels={"language": "ja"}) for sample in demonstrated]
    save_rows(tmp_path / "rows.jsonl", rows)
    keys = (f"sft.agentic.data_path={tmp_path / 'rows.jsonl'}", "sft.agentic.held_out=4")
    loaded = agentic_set(config(tmp_path, *keys), made.chat)
    assert (len(loaded.train), len(loaded.held_out), len(loaded.tasks)) == (12, 4, 4)
    recorded = {sample.trajectory.uid: sample.trajectory for sample in demonstrated}
    for sample in [*loaded.train, *loaded.held_out]:
        assert sample.language == "ja"
        assert sample.trajectory.token_ids == recorded[sample.trajectory.uid].token_ids
        assert sample.trajectory.loss_mask == recorded[sample.trajectory.uid].loss_mask
    with pytest.raises(ValueError, match="no row fits"):
        agentic_set(config(tmp_path, *keys, "policy.max_total_sequence_length=64"), made.chat)
    with pytest.raises(ValueError, match="0 rows to train on and 16 held out"):
        agentic_set(config(tmp_path, keys[0], "sft.agentic.held_out=16"), made.chat)
    assert isinstance(rows[0], ChatRow)


def test_a_gate_that_says_stop_ends_the_stage_with_a_checkpoint(tmp_path: Path) -> None:
    # Without set A and at a rate that breaks the model, the fall is far beyond any gate.
    settings = config(
        tmp_path, "sft.general.share=0", "sft.learning_rate=0.05", "sft.retention.on_breach=stop", "sft.rollouts=0"
    )
    made = players(settings)
    with RunLog.of(settings) as log:
        manager = CheckpointManager(log.folder / "sft_checkpoints", keep_top_k=1, save_period=100)
        with pytest.raises(RetentionStop, match="SFT ended after step 2: set A fell by"):
            sft_stage(made, log, INDEX, manager)
        assert manager.latest() is not None
        assert "sft.general.share" in (log.folder / "events.log").read_text()
    warned = config(tmp_path / "warn", "sft.general.share=0", "sft.learning_rate=0.05", "sft.rollouts=0")
    stage(warned)
    assert values(warned, "sft/general/drop")[-1] > warned.sft.retention.max_drop
    assert "warning" in (tmp_path / "warn" / "run" / "events.log").read_text()


@pytest.mark.parametrize(
    ("drop", "on_breach", "speaks"),
    [(0.03, "warn", True), (0.02, "warn", False), (9.0, "ignore", False), (-1.0, "stop", False)],
)
def test_the_gate_is_a_bound_from_above(tmp_path: Path, drop: float, on_breach: str, speaks: bool) -> None:
    settings = config(tmp_path, f"sft.retention.on_breach={on_breach}").sft.retention
    assert bool(breach(drop, settings)) is speaks


def test_rollouts_are_rated_by_turn_and_by_call() -> None:
    def episode(role: Role, reason: StopReason, *events: tuple[str, str]) -> Trajectory:
        return Trajectory(
            uid="x", task=Task(role=role, group_id="x"), token_ids=(), loss_mask=(), logprobs=(), stop_reason=reason,
            policy_version=0, events=tuple(ToolEvent(n, name, {}, error) for n, (name, error) in enumerate(events)),
        )  # fmt: skip

    rates = played_metrics(
        [
            episode(
                Role.SOLVER, StopReason.SUBMITTED, ("", "no tool call"), ("read_mail", "no such mail"), ("submit", "")
            ),
            episode(Role.SOLVER, StopReason.MAX_TURNS, ("read_mail", "")),
            episode(Role.SOLVER, StopReason.ENVIRONMENT_FAULT, ("read_mail", "away")),
        ]
    )
    assert rates == {
        "solver/submitted_rate": 0.5, "solver/call_rate": 0.75, "solver/tool_error_rate": pytest.approx(1 / 3),
    }  # fmt: skip
