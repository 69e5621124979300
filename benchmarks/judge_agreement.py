"""Does the judge agree with people? Hand-labelled answers against the rules, and a served model if there is one.

    python benchmarks/judge_agreement.py
    python benchmarks/judge_agreement.py --base-url http://127.0.0.1:8000/v1 --model NAME [--api-key-env VARIABLE]

``answer_pairs.jsonl`` was looked at while the rules were mended; ``answer_pairs_first_seen.jsonl`` was written before
that and measured only afterwards. An unsure verdict agrees with nobody. Faults of a served model are counted apart.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rewards.answers import Verdict
from rewards.endpoint import Endpoint, EndpointSettings
from rewards.judge import AnswerPair, RuleJudge
from rewards.llm_judge import EndpointJudge, JudgeSettings
from rewards.replies import EndpointFault

DATA = Path(__file__).parents[1] / "tests" / "rewards" / "data"
SETS = {"tuned on": "answer_pairs.jsonl", "first seen": "answer_pairs_first_seen.jsonl"}


@dataclass(frozen=True, slots=True)
class Labelled:
    """A person's ``label`` for an answer to a question whose key is known."""

    kind: str
    pair: AnswerPair
    label: Verdict


def load(path: Path) -> list[Labelled]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Labelled(row["kind"], AnswerPair(row["question"], row["answer"], row["key"]), Verdict(row["label"]))
        for row in rows
    ]


def by_rules(pairs: Sequence[Labelled]) -> list[Verdict]:
    judge = RuleJudge()
    return [judge.judge(p.pair.question, p.pair.answer, p.pair.key) for p in pairs]


def report(
    console: Console, title: str, pairs: Sequence[Labelled], verdicts: Sequence[Verdict | EndpointFault]
) -> None:
    """A table by kind, then each disagreement."""
    table = Table("kind", "pairs", "agree", "%", "paid wrongly", "unpaid wrongly", "unsure", "faults", title=title)
    kinds = {p.kind: p.kind for p in pairs} | {"all": ""}
    for name, kind in kinds.items():
        found = [(p.label, v) for p, v in zip(pairs, verdicts, strict=True) if kind in ("", p.kind)]
        agree = sum(label is v for label, v in found)
        table.add_row(
            name,
            str(len(found)),
            str(agree),
            f"{100 * agree / len(found):.1f}",
            str(sum((label, v) == (Verdict.WRONG, Verdict.RIGHT) for label, v in found)),
            str(sum((label, v) == (Verdict.RIGHT, Verdict.WRONG) for label, v in found)),
            str(sum(v is Verdict.UNSURE for _, v in found)),
            str(sum(isinstance(v, EndpointFault) for _, v in found)),
            end_section=name == list(kinds)[-2],
        )
    console.print(table)
    for p, verdict in zip(pairs, verdicts, strict=True):
        if verdict is not p.label:
            q = p.pair
            console.print(escape(f"{p.label} but {verdict}: {q.question} key {q.key!r}, answer {q.answer!r}"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url")
    parser.add_argument("--model", default="")
    parser.add_argument("--api-key-env")
    args = parser.parse_args()
    console = Console()
    for name, file in SETS.items():
        pairs = load(DATA / file)
        report(console, f"rules, {name}", pairs, by_rules(pairs))
        if args.base_url:
            client = EndpointSettings(base_url=args.base_url, model=args.model, api_key_env=args.api_key_env)
            settings = JudgeSettings(kind="endpoint", ask="always", disagree="endpoint", endpoint=client)
            served = EndpointJudge(RuleJudge(), Endpoint(client), settings)
            report(console, f"{args.model}, {name}", pairs, served.judge_all([p.pair for p in pairs]))


if __name__ == "__main__":
    main()
