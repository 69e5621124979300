"""The data set that a recipe's ``data.trajectories`` asks for, from the tasks to the two files that SFT reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from corpus_index.files import write_atomic
from environments.chat_format import ChatFormat
from environments.chat_rows import ChatRow, native_row, save_rows
from environments.json_lines import line_of
from environments.questions import corpus_fingerprint
from rewards.endpoint import Endpoint
from rewards.replies import Usage
from training.config import Config
from training.engines.models import load_tokenizer
from training.game import Board
from training.recipe import make_episode, make_players, open_board
from training.sft_data.endpoint_teacher import EndpointTeacher
from training.sft_data.expert_teacher import ExpertTeacher
from training.sft_data.pipeline import StageCounts, run_stages
from training.sft_data.policy_teacher import PolicyTeacher
from training.sft_data.solving import SolvePlan, solve
from training.sft_data.splitting import HELD_OUT, SPLIT, TRAIN
from training.sft_data.stages import REPLIES, make_stages, play_settings, reply_settings
from training.sft_data.tasks import draw_tasks, entities_of
from training.sft_data.teachers import Solved, Teacher, Try

JOURNAL, COUNTS = "01_solve.journal", "counts.jsonl"


def make_sft_data(config: Config, out: Path, say: Callable[[str], None]) -> list[StageCounts]:
    """Write ``train.jsonl``, ``held_out.jsonl`` and ``counts.jsonl`` to ``out``; the same command goes on from a kill.

    Raises Unavailable where a service is away or the budget is spent, and ValueError for settings that do not fit the
    corpus or the files that are there.
    """
    part = config.data.trajectories
    board = open_board(config, say)
    tries = [Try(task, sample) for task in draw_tasks(config, board, say) for sample in range(part.teacher.samples)]

    def cost(tokens: Usage) -> float:
        prices = part.teacher.prompt_price, part.teacher.completion_price
        return (tokens.prompt_tokens * prices[0] + tokens.completion_tokens * prices[1]) / 1e6

    plan = _plan(config, board)
    with _taught(config, board, out) as (teacher, chat):
        solved = solve(teacher, tries, plan, out / JOURNAL, say, cost=cost, max_cost=part.max_cost)
    rows = _labelled(config, board, tries, solved)
    troubles = Counter(one.trouble for one in solved if one.trouble)
    counts = [
        StageCounts(stage="solve", key="", given=len(tries), kept=len(rows), dropped=dict(troubles.most_common()))
    ]
    rows, more = run_stages(rows, make_stages(config, board, chat, out), out, say)
    counts += more
    _export(config, rows, out)
    write_atomic(out / COUNTS, b"".join(line_of(count) for count in counts))
    return counts


@contextmanager
def _taught(config: Config, board: Board, out: Path) -> Generator[tuple[Teacher, ChatFormat]]:
    """The teacher that ``teacher.kind`` names, and the chat format that its rows are for."""
    part = config.data.trajectories
    if part.teacher.kind == "policy":
        players = make_players(config, board.index)
        temperature = config.policy.generation.temperature
        yield (
            PolicyTeacher(
                players.engine, temperature=temperature, seed=part.seed, batch=config.engine.rollout_batch_size
            ),
            players.chat,
        )
        return
    chat = ChatFormat(load_tokenizer(config.policy))
    episode = make_episode(config, chat, board.index)
    if part.teacher.kind == "endpoint":
        with closing(Endpoint(part.teacher.endpoint, out / REPLIES)) as endpoint:
            yield EndpointTeacher(endpoint, episode, part.teacher, part.thoughts), chat
        return
    if board.company is None:
        raise ValueError(
            f"data.trajectories.teacher.kind expert needs known facts and corpus.source is {config.corpus.source}; use "
            "a company: source, or kind endpoint or policy"
        )
    language = part.teacher.language
    yield (
        ExpertTeacher(board.company, episode, seed=part.seed, thoughts=part.thoughts, language=language),
        chat,
    )


def _plan(config: Config, board: Board) -> SolvePlan:
    part = config.data.trajectories
    settings: dict[str, object] = {
        "teacher": part.teacher.model_dump(mode="json", include={"kind", "samples", "instructions", "language"}),
        "endpoint": reply_settings(part.teacher.endpoint) if part.teacher.kind == "endpoint" else None,
        "model": config.policy.model_name,
        "tasks": part.model_dump(mode="json", include={"seed", "questions_path", "solver_tasks", "proposer_tasks"}),
        "thoughts": part.thoughts,
        "selfplay": config.selfplay.model_dump(mode="json", include={"hops", "seeds", "tool_variants"}),
        "corpus": corpus_fingerprint(board.ids),
    }
    return SolvePlan(settings=settings | play_settings(config))


def _labelled(config: Config, board: Board, tries: Sequence[Try], solved: Sequence[Solved]) -> list[ChatRow]:
    teacher = config.data.trajectories.teacher
    labels = {"teacher": teacher.kind, "language": teacher.language}
    rows: list[ChatRow] = []
    for one, done in zip(tries, solved, strict=True):
        if done.row is None:
            continue
        said = done.row.outline().submission
        assert said is not None, "a teacher's row is handed in"
        entities = entities_of(one.taught, said.evidence, said.question or one.taught.task.question, board)
        rows.append(done.row.model_copy(update={"entities": entities, "labels": labels}))
    return rows


def _export(config: Config, rows: Sequence[ChatRow], out: Path) -> None:
    if config.data.trajectories.form == "native":
        rows = [native_row(row) for row in rows]
    for side in (TRAIN, HELD_OUT):
        save_rows(out / f"{side}.jsonl", [row for row in rows if row.labels.get(SPLIT, TRAIN) == side])
