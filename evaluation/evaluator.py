"""A benchmark that is ready to run: its questions, its own corpus, and the tools over it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from environments.questions import Question, load_questions
from evaluation.runner import EvalResult, benchmark_questions, evaluate
from rewards.judge import Judge
from training.config import Config
from training.engines.base import Sampling
from training.recipe import Players, company_of


class Evaluator:
    """Greedy Solver rollouts over a fixed set of questions on a corpus of their own.

    The engine plays on the benchmark's corpus for the length of a call and then returns to its own.
    """

    def __init__(self, players: Players, source: str, questions: Sequence[Question], judge: Judge) -> None:
        self._players = players
        self._episode = players.episode(players.company_index(source))
        self._judge = judge
        self.questions = tuple(questions)

    def __call__(self) -> EvalResult:
        engine, config = self._players.engine, self._players.config
        own = engine.episode
        engine.episode = self._episode
        try:
            return evaluate(
                engine, self.questions, self._judge, Sampling(greedy=config.evaluation.greedy),
                resamples=config.evaluation.bootstrap_samples, seed=config.evaluation.seed,
            )  # fmt: skip
        finally:
            engine.episode = own


def benchmark(players: Players, judge: Judge) -> Evaluator:
    """``evaluation.questions`` questions over ``evaluation.source``."""
    part = players.config.evaluation
    path = part.benchmark_path
    questions = load_questions(Path(path)) if path else company_questions(players.config, part.source, part.questions)
    return Evaluator(players, part.source, questions, judge)


def validation(players: Players, judge: Judge) -> Evaluator:
    """``grpo.max_val_samples`` questions over ``evaluation.validation_source``: what steers a run."""
    config = players.config
    source = config.evaluation.validation_source
    return Evaluator(players, source, company_questions(config, source, config.grpo.max_val_samples), judge)


def company_questions(config: Config, source: str, count: int) -> list[Question]:
    """``count`` questions in the shares of ``evaluation.hops``. Raises ValueError for a corpus without known facts."""
    company = company_of(source)
    if company is None:
        raise ValueError(
            f"{source} is no company: source, so its questions are not known; give evaluation.benchmark_path"
        )
    shares = config.evaluation.hops
    asked = [
        question
        for hops, share in sorted(shares.items())
        for question in company.questions(hops, round(share * count), seed=config.evaluation.seed)
    ]
    return benchmark_questions(asked, prefix=f"{company.spec.split}{company.spec.seed}")
