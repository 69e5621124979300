"""SFT on the scripted experts of both roles, over companies that no run uses."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from corpus_index.backends import open_memory_index
from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import CompanySpec
from environments.chat_format import ChatFormat
from environments.trajectory import Trajectory
from training.config import Config
from training.experts import Habits, demonstrations
from training.recipe import Players, make_episode
from training.runlog import SFT, RunLog
from training.seeds import seed_text

FIRST_SFT_COMPANY = 50_000  # apart from every seed that a recipe would name


def sft_company(config: Config, number: int) -> Company:
    """Companies of one ``sft.seed`` and different numbers differ, and no run uses them."""
    return Company(CompanySpec(seed=FIRST_SFT_COMPANY + config.sft.seed * 1000 + number, duplicates=0.0))


def company_demonstrations(config: Config, chat: ChatFormat, company: Company) -> Iterator[Trajectory]:
    part = config.sft
    return demonstrations(
        company, make_episode(config, chat, open_memory_index(company.documents())), chat,
        random.Random(company.spec.seed),
        proposer_share=part.proposer_share, proposer_hops=part.proposer_hops, solver_hops=part.solver_hops,
        seed_text=lambda mail: seed_text(mail, config.selfplay.seeds),
        variants=config.selfplay.tool_variants, habits=Habits(slip=part.slip, wander=part.wander),
        relation_weights=part.relation_weights, even_sorts=part.even_sorts,
    )  # fmt: skip


def warm_start(players: Players, log: RunLog) -> None:
    """``sft.max_num_steps`` steps on fresh demonstrations."""
    config, engine = players.config, players.engine
    part = config.sft
    streams = [
        company_demonstrations(config, players.chat, sft_company(config, number)) for number in range(part.companies)
    ]
    rng = random.Random(part.seed)
    for step in range(1, part.max_num_steps + 1):
        started = time.monotonic()
        batch = [next(rng.choice(streams)) for _ in range(part.trajectories_per_step)]
        metrics = engine.sft(batch)
        if step % 10 == 0 or step == part.max_num_steps:
            seconds = {"total": time.monotonic() - started}
            log.step(step, {f"sft/{k}": v for k, v in metrics.items()}, phase=SFT, seconds=seconds)
        else:
            log.write_metrics(step, {f"sft/{k}": v for k, v in metrics.items()}, phase=SFT)
