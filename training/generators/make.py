"""The generator that a recipe and the command line ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from corpus_index.document import Document
from corpus_index.graph import MailGraph
from corpus_index.sources.company import Company
from environments.questions import corpus_fingerprint
from rewards.endpoint import Endpoint
from training.config import Config
from training.game import Board
from training.generators.agentic import AgenticGenerator
from training.generators.base import Generator
from training.generators.build import BuildPlan
from training.generators.endpoint_writer import EndpointWriter
from training.generators.graph import GraphGenerator, Writer
from training.generators.sieve import Sieve
from training.generators.templates import TemplateGenerator, TemplateWriter
from training.recipe import make_players, run_folder

GeneratorName = Literal["templates", "graph", "agentic"]


def make_generator(name: GeneratorName, config: Config, board: Board, say: Callable[[str], None]) -> Generator:
    """Raises ValueError where the corpus has no known facts and the generator or its writer needs them, or the endpoint
    is not set up; IndexUnavailable where the graph's mails cannot be read."""
    part = config.data.generate
    if name == "agentic":
        return AgenticGenerator(make_players(config, board.index).engine, board, config)
    if name == "templates":
        return TemplateGenerator(_facts(board, config, "the templates generator"), part.seed, part.per_round)
    read = mail_reader(config, board)
    writer, threads = _writer(config, board)
    graph = MailGraph((mail for mail_id in board.ids if (mail := read(mail_id)) is not None), part.graph)
    say("graph: " + ", ".join(f"{count} {kind}" for kind, count in graph.counts().items()))
    return GraphGenerator(graph, read, writer, seed=part.seed, per_round=part.per_round, threads=threads)


def make_sieve(config: Config, board: Board) -> Sieve:
    return Sieve(mail_reader(config, board), config.rewards.proposer.checks)


def make_plan(name: GeneratorName, config: Config, board: Board, count: int) -> BuildPlan:
    """Hops come in the shares of ``selfplay.hops``."""
    part = config.data.generate
    settings: dict[str, object] = {
        "checks": config.rewards.proposer.checks.model_dump(mode="json"),
        "per_round": part.per_round,
    }
    if name == "graph":
        settings |= {"graph": part.graph.model_dump(mode="json"), "writer": part.writer}
        if part.writer == "endpoint":
            asked = {"base_url", "model", "temperature", "max_tokens"}
            settings |= {"endpoint": part.endpoint.model_dump(mode="json", include=asked)}
            settings |= {"mail_chars": part.mail_chars}
    if name == "agentic":
        settings |= {"model": config.policy.model_name, "tools": config.tools.model_dump(mode="json")}
    return BuildPlan(
        generator=name,
        corpus=config.corpus.source,
        fingerprint=corpus_fingerprint(board.ids),
        seed=part.seed,
        count=count,
        shares=config.selfplay.hops,
        patience=part.patience,
        settings=settings,
    )


def mail_reader(config: Config, board: Board) -> Callable[[str], Document | None]:
    """The mail of an id with the tools' retries. Raises IndexUnavailable when these were in vain."""
    return lambda mail_id: board.read(mail_id, config.tools)


def _writer(config: Config, board: Board) -> tuple[Writer, int]:
    """With how many paths it may be given at once."""
    part = config.data.generate
    if part.writer == "endpoint":
        endpoint = Endpoint(part.endpoint, run_folder(config) / "replies.sqlite")
        return EndpointWriter(endpoint, part.mail_chars), part.endpoint.max_concurrent
    return TemplateWriter(_facts(board, config, "data.generate.writer templates")), 1


def _facts(board: Board, config: Config, what: str) -> Company:
    if board.company is None:
        raise ValueError(
            f"{what} needs known facts and corpus.source is {config.corpus.source}; use a company: source, or the "
            "graph generator with data.generate.writer endpoint, or the agentic one"
        )
    return board.company
