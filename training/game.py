"""The board that self-play is played on: a corpus, the tools over it, and what may be known about its facts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from corpus_index.backends.base import SearchIndex
from corpus_index.document import Document
from corpus_index.retries import RetrySettings, retried
from corpus_index.scope import MailScope
from corpus_index.sources.company import Company, CompanyQuestion, chains
from corpus_index.sources.company_words import RELATIONS
from environments.task import Role, Task
from rewards.answers import Verdict
from rewards.judge import Judge
from training.config import Config
from training.deck import QuestionDeck
from training.engines.base import Sampling
from training.passes import dealt
from training.preflight import training_sampling
from training.seeds import seed_text


@dataclass(frozen=True)
class Board:
    """``index`` holds what ``scope`` of the config allows, ``ids`` are all its mails, in order. ``company`` is the
    oracle where the corpus is synthetic: rewards never see it, only the log and the fixed-question control do.
    ``questions`` are a file's (``data.train.data_path``), for the fixed mode."""

    index: SearchIndex
    ids: tuple[str, ...]
    company: Company | None = None
    questions: QuestionDeck | None = None

    def read(self, mail_id: str, settings: RetrySettings, scope: MailScope | None = None) -> Document | None:
        """A mail as a task of this ``scope`` may see it. Raises IndexUnavailable after the retries."""
        index = self.index if scope is None else self.index.within(scope)
        return retried(lambda: index.read(mail_id), settings)

    def proposer_tasks(self, config: Config, step: int, rng: random.Random) -> list[Task]:
        """``proposer_prompts_per_step`` groups of ``proposer_generations`` equal tasks, one seed a group.

        Raises IndexUnavailable where the seeds cannot be read.
        """
        play = config.selfplay
        count = min(play.proposer_prompts_per_step, len(self.ids))
        if play.cover:
            seeds = [self.ids[place] for place in dealt(len(self.ids), count, step, config.grpo.seed)]
        else:
            seeds = rng.sample(self.ids, count)
        tasks: list[Task] = []
        for k, mail_id in enumerate(seeds):
            task = self.proposer_task(config, f"{step}/p{k}", mail_id, draw_hops(play.hops, rng), rng)
            tasks += [task] * play.proposer_generations
        return tasks

    def proposer_task(self, config: Config, group_id: str, seed_mail: str, hops: int, rng: random.Random) -> Task:
        """Raises IndexUnavailable where the seed cannot be read."""
        mail = self.read(seed_mail, config.tools)
        if mail is None:
            raise LookupError(f"mail {seed_mail} is in the index's list but cannot be read; rebuild the index")
        return Task(
            role=Role.PROPOSER,
            group_id=group_id,
            hops=hops,
            seed=seed_text(mail, config.selfplay.seeds),
            tool_variant=rng.randrange(config.selfplay.tool_variants),
        )

    def fixed_tasks(self, config: Config, step: int, rng: random.Random) -> list[Task]:
        """Questions with known answers: ``num_prompts_per_step`` groups of ``num_generations_per_prompt``. Those of the
        file where there is one, whatever ``selfplay.hops`` says; else drawn from the company's facts."""
        groups = config.grpo.num_prompts_per_step
        if self.questions is not None:
            asked = [
                question.task(f"{step}/s{k}", rng.randrange(config.selfplay.tool_variants))
                for k, question in enumerate(self.questions.deal(step, groups))
            ]
        else:
            asked = [self._company_task(config, f"{step}/s{k}", rng) for k in range(groups)]
        return [task for task in asked for _ in range(config.grpo.num_generations_per_prompt)]

    def _company_task(self, config: Config, group_id: str, rng: random.Random) -> Task:
        if self.company is None:
            raise ValueError(
                f"selfplay.mode fixed needs questions with known answers and corpus.source is {config.corpus.source}; "
                "use a company: source, data.train.data_path, or selfplay.mode selfplay"
            )
        question = random_question(self.company, draw_hops(config.selfplay.hops, rng), rng)
        return Task(
            role=Role.SOLVER,
            group_id=group_id,
            hops=question.hops,
            question=question.question,
            answer=question.answer,
            evidence=question.evidence,
            tool_variant=rng.randrange(config.selfplay.tool_variants),
        )


def phase_sampling(config: Config, step: int, phase: int) -> Sampling:
    """``phase`` is the place of a rollout in its step: 0 Proposers, 1 Solvers, 2 readers, 3 Solvers with hints,
    10 and on the Solvers' further rounds."""
    seed = random.Random(f"{config.grpo.seed}/{step}/{phase}").getrandbits(48)
    return training_sampling(config, seed)


def draw_hops(shares: dict[int, float], rng: random.Random) -> int:
    return rng.choices(list(shares), list(shares.values()))[0]


def random_question(company: Company, hops: int, rng: random.Random) -> CompanyQuestion:
    """Uniform over relation chains, then over the entities they can start from."""
    options = chains(hops)
    while True:
        chain = rng.choice(options)
        question = company.question(rng, rng.choice(company.entities[RELATIONS[chain[0]].domain]), chain)
        if question is not None:
            return question


@dataclass(frozen=True, slots=True)
class Truth:
    """What the company's facts say of a proposed question: ``right`` key, and the ``hops`` it really has."""

    right: bool
    hops: int


def truth_of(company: Company, question: str, answer: str, judge: Judge) -> Truth:
    """A question outside the company's wordings, or about nothing that exists, counts as not right with 0 hops."""
    parsed = company.parse(question)
    if parsed is None:
        return Truth(False, 0)
    return Truth(judge.judge(question, answer, parsed.answer) is Verdict.RIGHT, parsed.hops)


def truth_metrics(truths: Sequence[tuple[int, Truth]]) -> dict[str, float]:
    """``truths`` pairs the hops asked for with the facts' verdict, over the questions the checks accepted."""
    if not truths:
        return {}
    n = len(truths)
    return {
        "proposals/true_rate": sum(t.right for _, t in truths) / n,
        "proposals/true_hops_rate": sum(t.right and t.hops == asked for asked, t in truths) / n,
        "proposals/hops2_share": sum(t.right and t.hops == 2 for _, t in truths) / n,
    }
