"""From a generator to a file of questions: rounds of tries, what is kept of them, a report, and a progress that a
killed command goes on from.

Beside ``OUT`` lies ``OUT.progress`` while it is built, a JSON object a round, and ``OUT.report.json`` when it is done.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from corpus_index.files import write_atomic
from environments.json_lines import line_of, whole_lines
from environments.questions import Question, QuestionFileError, save_questions
from rewards.patterns import question_pattern
from training.generators.base import Attempt, Generator
from training.generators.sieve import Sieve


class BuildPlan(BaseModel):
    """What is built, all that the questions follow from. ``shares``: hops to share of the questions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    generator: str
    corpus: str
    fingerprint: str
    seed: int
    count: int
    shares: Mapping[int, float]
    patience: int
    settings: Mapping[str, object] = {}
    """JSON values of whatever else the generator goes by: a progress made under other ones is not gone on from."""


class BuildReport(BaseModel):
    """``asked`` and ``kept`` by hops, ``dropped`` by hops and reason, ``patterns`` of what was kept by how often."""

    rounds: int
    asked: dict[int, int]
    kept: dict[int, int]
    dropped: dict[int, dict[str, int]]
    patterns: dict[str, int]
    evidence_sets: int
    exhausted: list[int]
    """Hops given up: too many rounds in a row brought nothing new."""

    def render(self) -> str:
        """A few lines for people."""
        asked, kept = sum(self.asked.values()), sum(self.kept.values())
        share = f" ({kept / asked:.0%})" if asked else ""
        lines = [
            f"{kept} questions of {asked} tries{share} in {self.rounds} rounds; {len(self.patterns)} patterns, "
            f"{self.evidence_sets} sets of evidence mails"
        ]
        for hops, tries in self.asked.items():
            reasons = sorted(self.dropped.get(hops, {}).items(), key=lambda item: -item[1])
            given_up = ", given up" if hops in self.exhausted else ""
            dropped = ", ".join(f"{reason} {number}" for reason, number in reasons) or "nothing"
            lines.append(f"  {hops} hops: {self.kept.get(hops, 0)} of {tries} kept{given_up}; dropped: {dropped}")
        return "\n".join(lines)


class _Round(BaseModel):
    """One line of the progress. ``questions`` were kept; ``dropped`` counts by reason."""

    hops: int
    questions: tuple[Question, ...]
    dropped: dict[str, int]


def build_questions(
    generator: Generator, sieve: Sieve, plan: BuildPlan, out: Path, say: Callable[[str], None]
) -> BuildReport:
    """Ask in rounds until ``plan.count`` questions are kept or no number of hops brings new ones, then write ``out``
    and its report, whole or not at all.

    The next round asks for the hops that lag most behind their share. Raises QuestionFileError where ``OUT.progress``
    is of another plan, OSError, and Unavailable where a service is away; the same command then goes on from there.
    """
    progress = out.with_name(out.name + ".progress")
    rounds = _resume(progress, plan)
    for done in rounds:
        for question in done.questions:
            sieve.remember(question.question, question.answer, question.evidence)
    if rounds:
        say(f"going on from {progress}: {len(rounds)} rounds, {_kept(rounds)} questions")
    with progress.open("ab") as file:
        if file.tell() == 0:
            file.write(line_of(plan))
        while (hops := _next_hops(rounds, plan)) is not None:
            left = plan.count - _kept(rounds)
            done = _sifted(generator.round(len(rounds), hops), sieve, plan, hops, _kept(rounds), left)
            file.write(line_of(done))
            file.flush()
            rounds.append(done)
            if done.questions:
                say(f"{_kept(rounds)} of {plan.count} questions after {len(rounds)} rounds")
    report = _report(rounds, plan)
    if not _kept(rounds):
        raise QuestionFileError(
            f"{plan.generator} made no question of {plan.corpus} that passes the checks, so {out} was not written; "
            f"{report.render()}\n{progress} holds what was tried: delete it to start over"
        )
    save_questions(out, [question for done in rounds for question in done.questions])
    report_path = out.with_name(out.name + ".report.json")
    written = {"plan": plan.model_dump(mode="json"), "report": report.model_dump(mode="json")}
    write_atomic(report_path, (json.dumps(written, indent=1, ensure_ascii=False) + "\n").encode())
    progress.unlink()
    return report


def _sifted(attempts: Sequence[Attempt], sieve: Sieve, plan: BuildPlan, hops: int, number: int, left: int) -> _Round:
    """At most ``left`` questions, numbered from ``number``; tries beyond them are not looked at."""
    questions: list[Question] = []
    dropped: Counter[str] = Counter()
    for attempt in attempts:
        if len(questions) == left:
            break
        reason = sieve.refusal(attempt)
        if reason:
            dropped[reason] += 1
            continue
        said = attempt.proposal.submission
        assert said is not None, "the sieve refuses a try without a submission"
        question = Question(
            id=f"{plan.generator}-{plan.seed}-{number + len(questions):05d}",
            question=said.question,
            answer=said.answer,
            evidence=said.evidence,
            hops=hops,
            entity=attempt.entity,
            kind=attempt.kind,
            generator=plan.generator,
            corpus=plan.corpus,
            fingerprint=plan.fingerprint,
            seed=plan.seed,
            scope=attempt.proposal.task.scope,
        )
        questions.append(question)
    return _Round(hops=hops, questions=tuple(questions), dropped=dict(dropped))


def _next_hops(rounds: Sequence[_Round], plan: BuildPlan) -> int | None:
    """The hops that lag most behind their share of those not given up; None when the building is over."""
    kept = _kept_by_hops(rounds)
    if sum(kept.values()) >= plan.count:
        return None
    given_up = _exhausted(rounds, plan)
    open_hops = [hops for hops, share in plan.shares.items() if share > 0 and hops not in given_up]
    return min(open_hops, key=lambda hops: (kept[hops] + 1) / plan.shares[hops], default=None)


def _exhausted(rounds: Sequence[_Round], plan: BuildPlan) -> list[int]:
    dry = dict.fromkeys(plan.shares, 0)
    for done in rounds:
        dry[done.hops] = 0 if done.questions else dry[done.hops] + 1
    return [hops for hops, in_a_row in dry.items() if in_a_row >= plan.patience]


def _kept(rounds: Sequence[_Round]) -> int:
    return sum(len(done.questions) for done in rounds)


def _kept_by_hops(rounds: Sequence[_Round]) -> Counter[int]:
    return Counter(done.hops for done in rounds for _ in done.questions)


def _report(rounds: Sequence[_Round], plan: BuildPlan) -> BuildReport:
    asked: Counter[int] = Counter()
    dropped: dict[int, Counter[str]] = {hops: Counter() for hops in plan.shares}
    for done in rounds:
        asked[done.hops] += len(done.questions) + sum(done.dropped.values())
        dropped[done.hops].update(done.dropped)
    questions = [question for done in rounds for question in done.questions]
    return BuildReport(
        rounds=len(rounds),
        asked=dict(sorted(asked.items())),
        kept=dict(sorted(_kept_by_hops(rounds).items())),
        dropped={hops: dict(reasons) for hops, reasons in sorted(dropped.items())},
        patterns=dict(Counter(question_pattern(question.question) for question in questions).most_common()),
        evidence_sets=len({frozenset(question.evidence) for question in questions}),
        exhausted=_exhausted(rounds, plan),
    )


def _resume(progress: Path, plan: BuildPlan) -> list[_Round]:
    """The rounds done so far; a line that a kill cut short is taken off the file."""
    lines = whole_lines(progress)
    if not lines:
        progress.unlink(missing_ok=True)
        return []
    first, *lines = lines
    try:
        made = BuildPlan.model_validate_json(first)
        rounds = [_Round.model_validate_json(line) for line in lines]
    except ValidationError as error:
        raise QuestionFileError(f"{progress} is no progress of this command; delete it to start over") from error
    if made != plan:
        other = [name for name in BuildPlan.model_fields if getattr(made, name) != getattr(plan, name)]
        raise QuestionFileError(
            f"{progress} was begun with another {', '.join(other)}; repeat that command, or delete the file to start "
            "over"
        )
    return rounds
