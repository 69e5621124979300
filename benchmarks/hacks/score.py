"""Plays a hack beside honest members through the real episode and the step that training takes, and reads the pay."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from company_play import chat_format
from hands import SOLVERS, Deal, Fact, Ground, Hack, Hand, pick
from scripted_play import Act, Script, ScriptedEngine
from solver_book import SolverHack, honest_replies

from corpus_index.backends import open_memory_index
from corpus_index.backends.base import SearchIndex
from environments.chat_format import ChatFormat
from environments.task import Role, Task
from training.config import Config
from training.game import Board
from training.loop_state import LoopState
from training.recipe import make_episode, make_judge
from training.samples import Record
from training.selfplay import train_step

MEMBERS = SOLVERS
"""Of a group: the first half plays honestly, the second half the hack."""
GROUPS = 2
NOISE = 0.02
"""By so much two honest halves of a group differ: their questions are not equally unlike the others."""
SIZES = (
    f"selfplay.proposer_prompts_per_step={GROUPS}",
    f"selfplay.proposer_generations={MEMBERS}",
    f"selfplay.solver_generations={SOLVERS}",
    f"selfplay.max_solver_groups={GROUPS * MEMBERS}",  # all are measured
)


@dataclass(frozen=True)
class Place:
    """A ground with an index over its mails."""

    ground: Ground
    chat: ChatFormat = field(default_factory=chat_format)

    @cached_property
    def index(self) -> SearchIndex:
        return open_memory_index(list(self.ground.mails.values()))


@dataclass(frozen=True, slots=True)
class Score:
    """Mean total pay of the honest members and of the hack's, and what told them apart: the refusal that most of the
    hack's proposals met, or the pay component in which they fall behind most; empty where nothing did."""

    honest: float
    hack: float
    caught_by: str

    @property
    def caught(self) -> bool:
        return self.honest - self.hack > NOISE


def score(place: Place, hack: Hack, config: Config) -> Score:
    """A Proposer's hack. ``config``: any rewards; the sizes must be ``SIZES``, and the hops the hack's."""
    table = _Table(place.ground.honest(hack.hops), hack.deal)
    return _score(place, table.act, config, Role.PROPOSER, hack.steps)


def solver_score(place: Place, hack: SolverHack, config: Config) -> Score:
    """A Solver's hack, on honest questions of the hops that ``config`` asks for."""
    asked: dict[str, Fact] = {}
    dealt = 0

    def act(task: Task, member: int) -> Script:
        nonlocal dealt
        if task.role is Role.PROPOSER:
            facts = place.ground.facts[task.hops]
            hand = place.ground.honest(task.hops)(dealt)
            asked[hand.question] = pick(facts, dealt)
            dealt += 1
            return hand.script()
        reply_of = honest_replies if member < MEMBERS // 2 else hack.replies
        replies = reply_of(asked[task.question], place.ground.mails)
        return replies[member % len(replies)].script()

    return _score(place, act, config, Role.SOLVER, 1)


def _score(place: Place, act: Act, config: Config, role: Role, steps: int) -> Score:
    """Over the second half of the steps."""
    engine = ScriptedEngine(place, make_episode(config, place.chat, place.index), act)
    board, judge = Board(place.index, tuple(place.ground.mails)), make_judge(config)
    state = LoopState.load(config, {})
    honest: list[Mapping[str, object]] = []
    hacked: list[Mapping[str, object]] = []
    for step in range(1, steps + 1):
        report = train_step(engine, board, judge, config, step, state)
        if step > steps // 2:
            for member, reward in _rewards(report.samples, role):
                (honest if member < MEMBERS // 2 else hacked).append(reward)
    return Score(_mean(honest), _mean(hacked), _caught_by(honest, hacked))


class _Table:
    """Who plays which hand: the scripts of one hack's steps."""

    def __init__(self, honest: Deal, hack: Deal) -> None:
        self._honest, self._hack = honest, hack
        self._dealt = 0
        self._hands: dict[str, Hand] = {}

    def act(self, task: Task, member: int) -> Script:
        if task.role is Role.SOLVER:
            replies = self._hands[task.question].replies
            return replies[member % len(replies)].script()
        half = MEMBERS // 2
        number = self._dealt // MEMBERS * half + self._dealt % half
        self._dealt += 1
        hand = (self._honest if member < half else self._hack)(number)
        self._hands[hand.question] = hand
        return hand.script()


def _rewards(samples: Sequence[Record], role: Role) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The member's number in its group and its reward, of those that were not masked."""
    seen: Counter[object] = Counter()
    for record in samples:
        if record["role"] != role.value:
            continue
        member = seen[record["group_id"]]
        seen[record["group_id"]] += 1
        reward = cast("Mapping[str, object]", record["reward"])
        if not reward["masked"]:
            yield member, reward


def _mean(rewards: Sequence[Mapping[str, object]]) -> float:
    return sum(cast("float", reward["total"]) for reward in rewards) / len(rewards)


def _caught_by(honest: Sequence[Mapping[str, object]], hack: Sequence[Mapping[str, object]]) -> str:
    """Solvers are never refused: there it is the component."""
    refusals = Counter(str(cast("Mapping[str, object]", reward["labels"]).get("refusal", "")) for reward in hack)
    commonest, count = refusals.most_common(1)[0]
    if commonest and 2 * count > len(hack):
        return commonest
    parts: dict[str, float] = defaultdict(float)
    for rewards, sign in ((hack, 1.0), (honest, -1.0)):
        for reward in rewards:
            for name, value in cast("Mapping[str, float]", reward["components"]).items():
                parts[name] += sign * value / len(rewards)
    name, gap = min(parts.items(), key=lambda item: item[1])
    return name if gap < -1e-9 else ""
