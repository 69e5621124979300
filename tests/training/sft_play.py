"""A small company, its experts' episodes as rows, and settings of a data set, for tests of ``training.sft_data``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from corpus_index.backends import open_memory_index
from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import CompanySpec
from environments.chat_rows import ChatRow
from environments.episode import Episode
from environments.tools import ToolBox
from training.config import Config
from training.config_load import load_config
from training.config_trajectories import Thoughts
from training.game import Board
from training.sft_data.expert_teacher import ExpertTeacher
from training.sft_data.tasks import TaughtTask, draw_tasks
from training.sft_data.teachers import Solved, Try

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "company:seed=3,projects=20,duplicates=0.0"
COMPANY = Company(CompanySpec(seed=3, projects=20, duplicates=0.0))
INDEX = open_memory_index(COMPANY.documents())
BOARD = Board(INDEX, tuple(INDEX.ids()), COMPANY)


@cache
def settings(*overrides: str) -> Config:
    return load_config(
        ROOT / "examples/configs/small_model.yaml",
        [
            "tools.describe=full", "tools.hit_fields=[date, subject]", "policy.max_total_sequence_length=8192",
            "data.trajectories.solver_tasks=30", "data.trajectories.proposer_tasks=15",
            "selfplay.hops={1: 0.5, 2: 0.5}", "selfplay.tool_variants=2", *overrides,
        ],
    )  # fmt: skip


def episode(config: Config | None = None) -> Episode:
    config = config or settings()
    return Episode(ToolBox(INDEX, config.tools), config.env)


@cache
def tasks() -> tuple[TaughtTask, ...]:
    return tuple(draw_tasks(settings(), BOARD, print))


@cache
def rows(thoughts: Thoughts = "think") -> tuple[ChatRow, ...]:
    teacher = ExpertTeacher(COMPANY, episode(), seed=1, thoughts=thoughts, language="en")
    landed: list[Solved] = []
    teacher.play([Try(task, 0) for task in tasks()], landed.append)
    return tuple(one.row for one in landed if one.row is not None)
