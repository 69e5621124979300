"""From a resolved config to the objects of a run: the corpus, the tools, the engine."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from corpus_index.backends import open_index, open_memory_index, open_writer
from corpus_index.backends.base import IndexMissing, SearchIndex
from corpus_index.faults import Unavailable
from corpus_index.pipeline import prepare
from corpus_index.scope import MailScope
from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import parse_spec
from environments.chat_format import ChatFormat
from environments.episode import Episode
from environments.tools import ToolBox
from rewards.endpoint import Endpoint
from rewards.judge import Judge, RuleJudge
from rewards.llm_judge import EndpointJudge
from training.checkpoint import CheckpointError
from training.config import Config
from training.console import printable
from training.deck import QuestionDeck, open_deck
from training.engines.base import Engine
from training.engines.local import LocalEngine, pick_device
from training.engines.models import load_policy
from training.faults import RunStop
from training.game import Board
from training.runlog import RunLogError

COMPANY = "company:"
_PACKAGES = frozenset({"corpus_index", "environments", "rewards", "training", "evaluation"})


def run_folder(config: Config) -> Path:
    return Path(config.logger.log_dir) / config.logger.run_name


def open_board(config: Config, say: Callable[[str], None]) -> Board:
    """Open the run's index, or build it from ``corpus.source`` first; the board is what ``scope`` leaves of it.

    Raises SourceError, IndexUnavailable, ValueError where the scope leaves no mail, and QuestionFileError where
    ``data.train.data_path`` does not fit the mails.
    """
    locator = config.corpus.index or f"embedded:{run_folder(config) / 'index'}"
    try:
        index = open_index(locator)
    except IndexMissing:  # any other trouble must not replace an index that may be whole
        say(f"building {locator} from {config.corpus.source}")
        documents, report = prepare(config.corpus.source, config.corpus.cleaning)
        open_writer(locator).build(documents)
        say(report.render())
        index = open_index(locator)
    if config.scope != MailScope():
        index = index.within(config.scope)
    ids = tuple(index.ids())
    if not ids and config.scope != MailScope():
        raise ValueError(f"no mail of {locator} lies within scope: {config.scope}. Widen it or check its names")
    return Board(index, ids, company_of(config.corpus.source), _deck(config, index, ids, say))


def _deck(config: Config, index: SearchIndex, ids: tuple[str, ...], say: Callable[[str], None]) -> QuestionDeck | None:
    path = config.data.train.data_path
    if path is None:
        return None
    return open_deck(
        Path(path), index, ids, seed=config.grpo.seed, shuffle=config.data.shuffle, patience=config.tools, say=say
    )


def company_of(source: str) -> Company | None:
    """The facts behind a synthetic corpus; None for a real one."""
    return Company(parse_spec(source.removeprefix(COMPANY))) if source.startswith(COMPANY) else None


def company_index(source: str, folder: Path | None = None) -> SearchIndex:
    """A synthetic company's mails, cleaned and indexed in memory, or in ``folder`` for other processes to open."""
    documents, _ = prepare(source)
    if folder is None:
        return open_memory_index(documents)
    locator = f"embedded:{folder}"
    open_writer(locator).build(documents)
    return open_index(locator)


def rule_judge(config: Config) -> RuleJudge:
    """What benchmarks and validation are measured by, so that runs compare whoever paid their rewards."""
    return RuleJudge(config.rewards.answers)


def make_judge(config: Config) -> Judge:
    """What the rewards are paid by. Raises ValueError where the endpoint's settings cannot work."""
    settings = config.rewards.judge
    if settings.kind == "rules":
        return rule_judge(config)
    cache = Path(settings.cache_path) if settings.cache_path else run_folder(config) / "judge_replies.sqlite"
    return EndpointJudge(rule_judge(config), Endpoint(settings.endpoint, cache), settings)


@dataclass(frozen=True)
class Players:
    """The engine and how it talks: ``episode(index)`` puts the same tools and prompts over another corpus. ``mirror``
    takes (step, phase, metrics) to boards of the engine's own."""

    engine: Engine
    chat: ChatFormat
    config: Config
    mirror: Callable[[int, str, Mapping[str, float]], None] | None = None

    def episode(self, index: SearchIndex) -> Episode:
        return make_episode(self.config, self.chat, index)

    def company_index(self, source: str) -> SearchIndex:
        """A company to be measured on, where the engine's episodes can search it."""
        if self.config.engine.name == "local":
            return company_index(source)
        digest = hashlib.sha256(source.encode()).hexdigest()[:12]
        return company_index(source, run_folder(self.config) / "companies" / digest)


def make_episode(config: Config, chat: ChatFormat, index: SearchIndex) -> Episode:
    return Episode(ToolBox(index, config.tools, special_tokens=chat.special_tokens()), config.env)


def make_players(config: Config, index: SearchIndex) -> Players:
    """Raises ValueError for a recipe that its engine cannot run, FileNotFoundError for missing weights, ConfigError
    where NeMo-RL is not there."""
    if config.engine.name == "nemo_rl":
        return _cluster_players(config, index)
    try:
        policy = load_policy(config.policy, device=pick_device(config.engine), seed=config.grpo.seed)
    except FileNotFoundError:
        raise
    except OSError as error:  # the library's own words need not name the model
        reason = str(error).partition("\n")[0]
        raise FileNotFoundError(
            f"policy.model_name {config.policy.model_name!r} is no folder here and could not be loaded from the Hub: "
            f"{reason}"
        ) from error
    chat = ChatFormat(policy.tokenizer)
    engine = LocalEngine(config, policy, chat, make_episode(config, chat, index))
    return Players(engine, chat, config)


def _cluster_players(config: Config, index: SearchIndex) -> Players:
    # A laptop without Ray and NeMo-RL plays with the local engine.
    from training.engines.nemo_rl.cluster import make_chat, make_engine

    chat = make_chat(config)
    engine = make_engine(config, chat, make_episode(config, chat, index))
    return Players(engine, chat, config, mirror=engine.log_metrics)


@contextmanager
def user_errors() -> Generator[None]:
    """Around a script: what its user can mend becomes one ``error: ...`` line and exit code 2.

    That is what the disk or the Hub refuses, and what our packages refuse in their own words. A ValueError out of a
    library is a bug of ours, and keeps its traceback like every other exception.
    """
    try:
        yield
    except (Unavailable, RunStop, CheckpointError, RunLogError, OSError, ValueError) as error:
        if isinstance(error, ValueError) and not _raised_by_us(error):
            raise
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        print(f"error: {printable(text)}", file=sys.stderr)
        raise SystemExit(2) from None


def _raised_by_us(error: Exception) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] in _PACKAGES
