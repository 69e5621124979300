"""A small company on disk, the small model, and engines of both kinds that play on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from company_play import load
from tiny_cluster import CPU, TinyCluster

from corpus_index.backends import open_index, open_writer
from corpus_index.backends.base import SearchIndex
from corpus_index.scope import MailScope
from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import CompanySpec
from environments.chat_format import ChatFormat
from environments.episode import Episode
from environments.nemo_rl import SearchActor
from environments.task import Role, Task
from training.config import Config
from training.engines.local import LocalEngine
from training.engines.models import load_policy
from training.engines.nemo_rl.cluster import env_section
from training.engines.nemo_rl.engine import NemoRlEngine
from training.game import Board
from training.recipe import make_episode

SMALL = (
    "selfplay.proposer_prompts_per_step=2", "selfplay.proposer_generations=4", "selfplay.solver_generations=4",
    "selfplay.max_solver_groups=2", "selfplay.hops={1: 1.0}", "selfplay.tool_variants=1", "tools.retries=0",
    "policy.generation.max_new_tokens=48", "grpo.max_rollout_turns=4", "env.limits.max_turns=4",
)  # fmt: skip


@dataclass
class Game:
    config: Config
    company: Company
    index: SearchIndex
    chat: ChatFormat
    actors: dict[str, Any] = field(default_factory=dict)
    """By the locator of their index: starting one takes seconds."""

    @property
    def board(self) -> Board:
        return Board(self.index, tuple(self.index.ids()), self.company)

    def episode(self) -> Episode:
        return make_episode(self.config, self.chat, self.index)

    def start_actor(self, episode: Episode) -> Any:
        locator = episode.toolbox.index.locator
        if locator not in self.actors:
            self.actors[locator] = SearchActor.remote(env_section(self.config, episode, MailScope()))
        return self.actors[locator]

    def cluster(self, **options: Any) -> TinyCluster:
        return TinyCluster(self.config, self.chat, **options)

    def nemo(self, cluster: TinyCluster | None = None, **options: Any) -> NemoRlEngine:
        made = cluster or self.cluster(**options)
        return NemoRlEngine(
            self.config, self.chat, self.episode(), assemble=made.assemble, start_actor=self.start_actor
        )

    def local(self) -> LocalEngine:
        policy = load_policy(self.config.policy, device=CPU, seed=self.config.grpo.seed)
        return LocalEngine(self.config, policy, self.chat, self.episode())

    def with_config(self, **changes: Any) -> Game:
        """The same corpus and actors under other settings, by section: ``grpo={...}``."""
        sections = {name: getattr(self.config, name).model_copy(update=new) for name, new in changes.items()}
        return Game(self.config.model_copy(update=sections), self.company, self.index, self.chat, self.actors)

    def tasks(self, groups: int = 2, members: int = 2) -> list[Task]:
        """Solver tasks on facts of the company; the first two groups have one prompt."""
        asked = self.company.questions(1, max(groups - 1, 1), seed=5)
        asked = [asked[0], *asked] if groups > 1 else list(asked)
        return [
            Task(role=Role.SOLVER, group_id=f"g{number}", question=q.question, answer=q.answer, evidence=q.evidence)
            for number, q in enumerate(asked[:groups])
            for _ in range(members)
        ]


def open_game(folder: Path, *overrides: str, seed: int = 3, projects: int = 20) -> Game:
    """``overrides`` of the small model's recipe."""
    config = load(*SMALL, *overrides)
    company = Company(CompanySpec(seed=seed, projects=projects, duplicates=0.0))
    locator = f"embedded:{folder / 'index'}"
    open_writer(locator).build(company.documents())
    policy = load_policy(config.policy, device=CPU, seed=config.grpo.seed)
    return Game(config, company, open_index(locator), ChatFormat(policy.tokenizer))
