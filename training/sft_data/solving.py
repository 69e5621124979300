"""The first stage: a teacher plays all tries. Each that is over is a line of a journal, so a killed command loses none.

``OUT/01_solve.journal`` holds the plan and a line a try, in the order in which they ended. A line that a kill cut short
is taken off; everything else is not played again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from corpus_index.faults import Unavailable
from environments.json_lines import LineFileError, line_of, whole_lines
from rewards.replies import Usage
from training.sft_data.teachers import Solved, Teacher, Try

REPORTS = 20  # progress lines of a run of the stage


class SolvePlan(BaseModel):
    """All that the episodes follow from: a journal made under another plan is not gone on from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Mapping[str, object]


class BudgetSpent(Unavailable):
    """``data.trajectories.max_cost`` is reached; what was played is kept."""


def solve(
    teacher: Teacher,
    tries: Sequence[Try],
    plan: SolvePlan,
    journal: Path,
    say: Callable[[str], None],
    *,
    cost: Callable[[Usage], float],
    max_cost: float | None = None,
) -> list[Solved]:
    """Play what the journal lacks. All tries that are over, in the order of ``tries``.

    Raises LineFileError where the journal is of another plan, Unavailable where a service is away or the budget is
    spent; the same command then goes on.
    """
    known = {one.uid: one for one in _resume(journal, plan)}
    left = [one for one in tries if one.uid not in known]
    if known:
        say(f"going on from {journal}: {len(known)} of {len(tries)} episodes are played")
    log = _Journal(journal, plan, known, len(tries), say, cost, max_cost)
    try:
        if left:
            teacher.play(left, log.landed)
    finally:
        log.close()
    missing = sum(one.uid not in known for one in tries)
    if missing:
        raise Unavailable(f"{missing} of {len(tries)} episodes are not over; give the same command again")
    return [known[one.uid] for one in tries]


class _Journal:
    def __init__(
        self,
        path: Path,
        plan: SolvePlan,
        known: dict[str, Solved],
        total: int,
        say: Callable[[str], None],
        cost: Callable[[Usage], float],
        max_cost: float | None,
    ) -> None:
        self._known = known
        self._total = total
        self._say = say
        self._cost = cost
        self._max_cost = max_cost
        self._spent = sum((one.tokens for one in known.values()), Usage())
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        if self._file.tell() == 0:
            self._file.write(line_of(plan))

    def landed(self, solved: Solved) -> None:
        with self._lock:
            self._file.write(line_of(solved, exclude_defaults=True))
            self._file.flush()
            self._known[solved.uid] = solved
            self._spent += solved.tokens
            if len(self._known) % max(self._total // REPORTS, 1) == 0 or len(self._known) == self._total:
                self._say(self._progress())
            spent = self._cost(self._spent)
        if self._max_cost is not None and spent >= self._max_cost and len(self._known) < self._total:
            raise BudgetSpent(
                f"the episodes so far cost {spent:.2f}, data.trajectories.max_cost is {self._max_cost:.2f}; raise it "
                "and give the same command again, or lower the number of tasks",
                passing=False,
            )

    def _progress(self) -> str:
        done = len(self._known)
        rows = sum(one.row is not None for one in self._known.values())
        tokens, cost = self._spent, self._cost(self._spent)
        line = f"{done} of {self._total} episodes, {rows} handed in"
        if tokens.prompt_tokens or tokens.completion_tokens:
            line += f", {tokens.prompt_tokens:,} prompt and {tokens.completion_tokens:,} completion tokens"
        if cost:
            line += f", cost {cost:.2f} (of {cost / done * self._total:.2f} at this rate)"
        return line

    def close(self) -> None:
        self._file.close()


def _resume(journal: Path, plan: SolvePlan) -> list[Solved]:
    lines = whole_lines(journal)
    if not lines:
        return []
    try:
        made = SolvePlan.model_validate_json(lines[0])
        known = [Solved.model_validate_json(line) for line in lines[1:]]
    except ValidationError as error:
        raise LineFileError(f"{journal} is no journal of this command; delete it to start over") from error
    asked = SolvePlan.model_validate_json(plan.model_dump_json())
    if made != asked:
        other = sorted(
            name for name in {**made.settings, **asked.settings} if made.settings.get(name) != asked.settings.get(name)
        )
        raise LineFileError(
            f"{journal} was begun with another {', '.join(other)}; repeat that command, name another --out, or delete "
            "the file to start over"
        )
    return known
