"""A small company, its tools and scripts that play on it, for tests of the experts and of the self-play step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from corpus_index.backends import open_memory_index
from corpus_index.backends.base import SearchIndex
from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import CompanySpec
from environments.chat_format import ChatFormat
from environments.episode import Episode
from environments.tools import ToolBox
from training.config import Config
from training.config_load import load_config
from training.tokenizer import train_tokenizer

ROOT = Path(__file__).resolve().parents[2]


def load(*overrides: str) -> Config:
    """The small model's text formats."""
    return load_config(ROOT / "examples/configs/small_model.yaml", overrides)


def two_groups(*overrides: str) -> Config:
    """A step of two one-hop Proposer groups, whose faults are not retried."""
    return load(
        "grpo.num_generations_per_prompt=4", "selfplay.proposer_prompts_per_step=2", "selfplay.hops={1: 1.0}",
        "selfplay.tool_variants=1", "tools.retries=0", *overrides,
    )  # fmt: skip


@cache
def chat_format() -> ChatFormat:
    return ChatFormat(train_tokenizer(["x"], 300, 4096))


@dataclass(frozen=True)
class Place:
    """A company and the tools over its mails."""

    company: Company
    index: SearchIndex
    chat: ChatFormat

    def episode(self, config: Config, index: SearchIndex | None = None) -> Episode:
        toolbox = ToolBox(index or self.index, config.tools, special_tokens=self.chat.special_tokens())
        return Episode(toolbox, config.env)


def place(seed: int = 3, projects: int = 20, without: frozenset[str] = frozenset()) -> Place:
    company = Company(CompanySpec(seed=seed, projects=projects, duplicates=0.0))
    mails = [mail for mail in company.documents() if mail.id not in without]
    return Place(company, open_memory_index(mails), chat_format())
