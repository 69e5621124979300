"""What a teacher is given to play: Solver tasks with known answers and Proposer tasks, each with its number."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from corpus_index.document import Document
from corpus_index.entities import named_things
from environments.questions import Question
from environments.task import Task
from training.config import Config
from training.config_trajectories import TrajectoriesConfig
from training.deck import open_deck
from training.game import Board, draw_hops, random_question


@dataclass(frozen=True, slots=True)
class TaughtTask:
    """``entities`` are what the task is known to be about, ``seed`` a Proposer's seed mail."""

    number: int
    task: Task
    entities: tuple[str, ...] = ()
    seed: Document | None = None


def draw_tasks(config: Config, board: Board, say: Callable[[str], None]) -> list[TaughtTask]:
    """All tasks of ``data.trajectories``, Solvers' first; the same for the same config and corpus.

    Raises QuestionFileError, IndexUnavailable, and ValueError where there are no questions to be had.
    """
    part = config.data.trajectories
    rng = random.Random(f"{part.seed}/trajectories")
    asked = _questions(config, board, part, rng, say)
    solvers = [
        TaughtTask(
            k,
            question.task(f"solver/{k}", rng.randrange(config.selfplay.tool_variants)),
            (question.entity,) if question.entity else (),
        )
        for k, question in enumerate(asked)
    ]
    return [*solvers, *_proposers(config, board, part, len(solvers), rng)]


def _questions(
    config: Config, board: Board, part: TrajectoriesConfig, rng: random.Random, say: Callable[[str], None]
) -> list[Question]:
    if not part.solver_tasks:
        return []
    if part.questions_path is not None:
        path = Path(part.questions_path)
        deck = open_deck(path, board.index, board.ids, seed=part.seed, shuffle=True, patience=config.tools, say=say)
        return deck.deal(1, min(part.solver_tasks, len(deck.questions)))
    if board.company is None:
        raise ValueError(
            f"data.trajectories.questions_path is null and corpus.source {config.corpus.source} is no company: name a "
            "file that examples/make_tasks.py built, or set data.trajectories.solver_tasks to 0"
        )
    found: dict[str, Question] = {}
    for _ in range(20 * part.solver_tasks):
        if len(found) == part.solver_tasks:
            break
        drawn = random_question(board.company, draw_hops(config.selfplay.hops, rng), rng)
        found.setdefault(
            drawn.question,
            Question(
                id=f"company-{len(found)}", question=drawn.question, answer=drawn.answer, evidence=drawn.evidence,
                hops=drawn.hops, entity=drawn.entity,
            ),
        )  # fmt: skip
    return list(found.values())


def _proposers(
    config: Config, board: Board, part: TrajectoriesConfig, first: int, rng: random.Random
) -> list[TaughtTask]:
    tasks: list[TaughtTask] = []
    for k, mail_id in enumerate(rng.sample(board.ids, min(part.proposer_tasks, len(board.ids)))):
        task = board.proposer_task(config, f"proposer/{k}", mail_id, draw_hops(config.selfplay.hops, rng), rng)
        seed = board.read(mail_id, config.tools)
        tasks.append(TaughtTask(first + k, task, (), seed))
    return tasks


def entities_of(taught: TaughtTask, evidence: tuple[str, ...], question: str, board: Board) -> tuple[str, ...]:
    """What an episode is about, for the split: the things its question names, and its mails.

    A Solver's question may bring its entities; a Proposer's is read by the company's oracle where there is one, else by
    its capitals and digits.
    """
    named = list(taught.entities)
    if board.company is None:
        named += named_things(question)
    elif not named and (parsed := board.company.parse(question)) is not None:
        named.append(parsed.entity)
    mails = dict.fromkeys((*taught.task.evidence, *evidence))
    return (*named, *(f"mail {mail_id}" for mail_id in mails))
