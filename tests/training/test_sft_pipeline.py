"""The whole command, from a recipe to the files."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from chat_server import Reply, said, serving
from served_teacher import USAGE
from sft_play import ROOT, SOURCE, settings

from environments.chat_format import ChatFormat
from environments.chat_rows import load_rows
from environments.task import Role
from training.config_load import ConfigError, load_config, plain_tree, validate_config
from training.engines.models import load_tokenizer
from training.sft_data.make import make_sft_data
from training.sft_data.pipeline import StageCounts, table
from training.sft_data.thoughts import thoughts_of


def made(out: Path, *overrides: str) -> tuple[list[StageCounts], list[str]]:
    lines: list[str] = []
    config = settings(f"logger.log_dir={out}", f"corpus.source='{SOURCE}'", *overrides)
    return make_sft_data(config, out / "data", lines.append), lines


def test_a_company_and_its_experts_make_a_data_set_in_stages(tmp_path: Path) -> None:
    counts, _ = made(tmp_path, "data.trajectories.scenario.by=templates", "data.trajectories.scenario.share=0.7")
    assert [count.stage for count in counts] == ["solve", "correct", "clean", "scenario", "deduplicate", "split"]
    for before, after in pairwise(counts):
        assert after.given == before.kept
    for count in counts:
        assert count.given == count.kept + sum(count.dropped.values())
    assert counts[-1].kept > 30
    train, held = (load_rows(tmp_path / "data" / f"{name}.jsonl") for name in ("train", "held_out"))
    assert len(train) + len(held) == counts[-1].kept
    assert not {e for row in train for e in row.entities} & {e for row in held for e in row.entities}
    assert {row.task.role for row in train} == set(Role)
    assert sum("scenario" in row.labels for row in train + held) >= 10
    assert all(row.labels["language"] == "en" for row in train)
    ids = {row.id for row in train + held}
    assert len(ids) == len(train) + len(held)
    chat = ChatFormat(load_tokenizer(settings().policy))
    assert all(0 < row.trajectory(chat).sampled_tokens < len(row.trajectory(chat).token_ids) for row in train)
    lines = table(counts).splitlines()
    assert lines[2].startswith("| solve | 45 |")
    assert len(lines) == 2 + len(counts)


def test_stages_run_again_only_where_something_changed(tmp_path: Path) -> None:
    first, _ = made(tmp_path)
    train = (tmp_path / "data" / "train.jsonl").read_bytes()
    again, lines = made(tmp_path)
    assert again == first
    assert [line for line in lines if "done before" in line] == [
        f"{count.stage}: done before, {count.kept} of {count.given} rows" for count in first[1:]
    ]
    assert (tmp_path / "data" / "train.jsonl").read_bytes() == train
    (tmp_path / "data" / "03_clean.json").unlink()  # killed after the file of rows, before its counts
    _, lines = made(tmp_path)
    assert sum("done before" in line for line in lines) == len(first) - 2
    _, lines = made(tmp_path, "data.trajectories.held_out=0.4")
    assert [line.split(":")[0] for line in lines if "done before" not in line and " rows" in line] == ["split"]
    (tmp_path / "fresh").mkdir()
    other, _ = made(tmp_path / "fresh")
    assert other == first
    assert (tmp_path / "fresh" / "data" / "train.jsonl").read_bytes() == train


def bad_writer(number: int, body: dict[str, Any]) -> Reply:
    """Rewrites as asked, but one reply in five breaks a rule, and one in ten is a refusal."""
    asked = json.loads(body["messages"][1]["content"])
    kind = sum(map(ord, asked["calls"][0])) % 10
    if kind == 0:
        return said(None, refusal="no")
    thoughts = [f"[{thought}]" for thought in asked["thoughts"]]
    if kind == 1:
        thoughts = thoughts[:-1]
    if kind == 2:
        thoughts[0] += " <tool_call>"
    return said(json.dumps({"thoughts": thoughts}), usage=USAGE)


def test_llm_stages_change_words_alone_and_count_what_they_could_not(tmp_path: Path) -> None:
    with serving(bad_writer) as server:
        llm = (
            f"data.trajectories.writer={{base_url: '{server.url}', model: w, backoff_seconds: 0.01}}",
            "data.trajectories.translate=Japanese", "data.trajectories.translate_label=ja",
            "data.trajectories.polish=true", "data.trajectories.scenario.by=endpoint", "data.trajectories.form=native",
        )  # fmt: skip
        counts, _ = made(tmp_path, *llm)
        by_name = {count.stage: count for count in counts}
        asked = len(server.asked)
        assert made(tmp_path, *llm)[0] == counts
        assert len(server.asked) == asked
    scenario, translated, polished = (by_name[name] for name in ("scenario", "translate", "polish"))
    assert scenario.given == scenario.kept
    assert {"turns", "markup", "writer_refused"} <= set(translated.dropped)
    assert translated.notes == {"translated": translated.kept}
    assert polished.kept == polished.given
    plain, _ = made(tmp_path / "plain")
    rows_ = load_rows(tmp_path / "data" / "train.jsonl")
    assert plain[-1].kept > by_name["split"].kept > 0
    assert all(row.labels["language"] == "ja" for row in rows_)
    assert all(thought.startswith("[[") for row in rows_ for thought in thoughts_of(row))
    kinds = Counter(message.role for row in rows_ for message in row.messages if message.tool_calls)
    assert kinds["assistant"] > 0
    assert all(row.tools for row in rows_)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.trajectories.teecher.kind=expert", r"nearest: data\.trajectories\.teacher"),
        ("data.trajectories.polish=true", "need writer.model"),
        ("data.trajectories.teacher.kind=endpoint", "teacher.kind endpoint needs teacher.endpoint.model"),
        ("data.trajectories.max_cost=3.0", "needs teacher.prompt_price"),
        ("data.trajectories.stages=[clean, clean]", "names a stage twice"),
        ("data.trajectories.stages=[clean, dedup]", "deduplicate"),
    ],
)
def test_settings_that_cannot_work_say_so(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(override)


@pytest.mark.parametrize("recipe", ["sft_data_company.yaml", "sft_data_enron.yaml"])
def test_the_shipped_recipes_are_whole(recipe: str) -> None:
    config = load_config(ROOT / "examples/configs" / recipe)
    assert config.data.trajectories.solver_tasks > 0
    assert validate_config(plain_tree(config)) == config


def test_a_corpus_without_facts_needs_a_file_and_a_model(tmp_path: Path) -> None:
    def refused(*overrides: str) -> str:
        config = settings(f"logger.log_dir={tmp_path}", f"corpus.source=eml:{tmp_path / 'mail'}", *overrides)
        with pytest.raises(ValueError, match=r"data\.trajectories") as caught:
            make_sft_data(config, tmp_path / "data", print)
        return str(caught.value)

    (tmp_path / "mail").mkdir()
    (tmp_path / "mail" / "1.eml").write_text("From: a@b.org\nSubject: Hi\n\nRoom 12 it is.\n")
    assert "questions_path is null" in refused()
    assert "kind expert needs known facts" in refused("data.trajectories.solver_tasks=0")
