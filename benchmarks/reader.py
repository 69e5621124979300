"""Can a policy be its own reader? uv run benchmarks/reader.py --config examples/configs/selfplay_quickstart.yaml

True questions of the recipe's company, read as ``rewards.reader`` has it: closed-book, with the evidence among
distractors, and without one mail of the evidence. A row is the share of right readings (for the last: of the mail whose
absence hurts least) and of questions that did not fit into the context.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from environments.task import Role, Task
from environments.trajectory import StopReason, Submission, Trajectory
from evaluation.report import markdown_table
from training.config_load import load_config
from training.evidence import EvidenceDesk
from training.game import Board
from training.reader import read_questions
from training.recipe import company_index, company_of, make_judge, make_players

CHECKS = {"closed_book": "closed_book", "evidence": "read", "necessity": "needless"}
"""Check -> its label in the verdict."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument("--questions", type=int, default=40, help="of each number of hops")
    args, overrides = parser.parse_known_args()
    config = load_config(args.config, overrides)
    company = company_of(config.corpus.source)
    if company is None:
        raise SystemExit(f"error: corpus.source is {config.corpus.source}: only a company: source knows true questions")
    index = company_index(config.corpus.source)
    board = Board(index, tuple(index.ids()), company)
    players, judge = make_players(config, board.index), make_judge(config)
    rows: list[list[str]] = []
    for hops in (1, 2):
        asked = [
            proposal(question.question, question.answer, question.evidence, hops)
            for question in company.questions(hops, args.questions)
        ]
        for check, label in CHECKS.items():
            alone = load_config(args.config, [*overrides, f"rewards.reader.{check}.enabled=true"])
            desk = EvidenceDesk(board, config.tools)
            verdicts = read_questions(players.engine, desk, judge, alone, 1, asked)
            shares = [verdict.labels[label] for verdict in verdicts if label in verdict.labels]
            right = f"{sum(shares) / len(shares):.2f}" if shares else ""
            unknown = sum(verdict.unknown for verdict in verdicts) / len(verdicts)
            rows.append([str(hops), check, str(len(asked)), right, f"{unknown:.2f}"])
    print(markdown_table(("hops", "context", "questions", "right", "did not fit"), rows), end="")


def proposal(question: str, answer: str, evidence: tuple[str, ...], hops: int) -> Trajectory:
    """As a Proposer that never errs would have handed it in."""
    return Trajectory(
        uid=question,
        task=Task(role=Role.PROPOSER, group_id="truth", hops=hops),
        token_ids=(),
        loss_mask=(),
        logprobs=(),
        stop_reason=StopReason.SUBMITTED,
        policy_version=0,
        submission=Submission(answer, evidence, question),
    )


if __name__ == "__main__":
    main()
