"""A real node of one's own to do harm to, and many episodes that search it at once."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from opensearch_node import random_queries

from corpus_index.backends import open_index, open_writer
from corpus_index.backends.base import SearchIndex
from corpus_index.backends.opensearch_client import Connection, parse_address
from corpus_index.document import Document
from environments.episode import Episode
from environments.protocol import render_call
from environments.task import Role, Task
from environments.tools import ToolBox, ToolSettings
from environments.trajectory import StopReason
from training.engines.tool_calls import ToolLoop

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docker" / "opensearch-jvm"))

import node  # noqa: E402  (the launcher is no package)


class PrivateNode:
    """``with PrivateNode(folder) as mine:`` a node that may be killed and started again: same data, same port.

    Start it in the main thread only: the kernel stops it when the thread that started it ends.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None) -> None:
        self.folder, self._settings = folder, settings
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Raises RuntimeError where it does not run."""
        pid = node.running_pid(self.folder)
        if pid is None:
            raise RuntimeError(f"no node runs on {self.folder}")
        return pid

    def start(self) -> None:
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        self.url = node.start(self.folder, port=port, settings=self._settings, deadline=300.0, die_with_parent=True)

    def stop(self) -> None:
        node.stop(self.folder)

    def kill(self) -> None:
        """At once: it finishes nothing and says goodbye to nobody."""
        self.signal(signal.SIGKILL)
        while node.running_pid(self.folder) is not None:
            time.sleep(0.01)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


@dataclass(frozen=True)
class Played:
    """``answers`` ``[episodes][turns]`` are what the model read, ``faults`` ``[episodes]`` why an episode was masked
    (empty where it was not). When the harm was done, ``in_flight`` calls were under way; ``waiting`` more had no place.
    """

    answers: list[list[str]]
    faults: list[str]
    in_flight: int
    waiting: int

    @property
    def masked(self) -> int:
        """Episodes that ended by an environment fault."""
        return sum(map(bool, self.faults))

    def lost(self, expected: Played) -> int:
        """Answers that are others than ``expected``, or not there although their episode was not masked."""
        pairs = zip(self.answers, self.faults, expected.answers, strict=True)
        return sum(
            mine[turn] != answer if turn < len(mine) else not fault
            for mine, fault, theirs in pairs
            for turn, answer in enumerate(theirs)
        )


def scripts(mails: Sequence[Document], episodes: int, seed: int = 0) -> list[list[str]]:
    """``[episodes][turns]``, what the model says: two searches for words of mails, then a mail is opened."""
    rng = random.Random(seed)
    words = random_queries(mails, 2 * episodes, seed)
    searches = [render_call("search_keyword", {"keywords": own}) for own in words]
    reads = [render_call("read_mail", {"id": rng.choice(mails).id}) for _ in range(episodes)]
    return [[searches[2 * k], searches[2 * k + 1], reads[k]] for k in range(episodes)]


def play(
    index: SearchIndex,
    turns: Sequence[Sequence[str]],
    settings: ToolSettings,
    *,
    harm: Callable[[], None] | None = None,
    after: int = 0,
) -> Played:
    """All episodes at once, through the loop that rollouts use; ``harm`` is done when ``after`` turns were answered.

    The other episodes go on asking meanwhile. Closes the index.
    """
    episode = Episode(ToolBox(index, settings))
    states = [episode.start(Task(role=Role.SOLVER, group_id=str(k), question="?"))[0] for k in range(len(turns))]
    answers = [list[str]() for _ in turns]
    places, in_flight, running, answered = settings.max_concurrent_calls, 0, len(turns), 0
    loop = ToolLoop(places)
    try:
        with loop.calls(episode) as calls:
            for key, state in enumerate(states):
                calls.send(key, state, turns[key][0])
            while running:
                for key, (observation, state) in calls.ended(wait=True):
                    states[key], running, answered = state, running - 1, answered + 1
                    if state.stop_reason is not StopReason.ENVIRONMENT_FAULT:
                        answers[key].append(observation.text)
                        if len(answers[key]) < len(turns[key]):
                            calls.send(key, state, turns[key][len(answers[key])])
                            running += 1
                if harm is not None and answered >= after:
                    in_flight = running
                    harm()
                    harm = None
    finally:
        loop.close()
        index.close()
    faults = [s.events[-1].error if s.stop_reason is StopReason.ENVIRONMENT_FAULT else "" for s in states]
    return Played(answers, faults, min(in_flight, places), max(in_flight - places, 0))


class Wrong(AssertionError):
    """The outcome of a fault is another one."""


def expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Wrong(otherwise)


class Lab:
    """A private node with an index of ``mails``, and the answers that many episodes get while it is well."""

    def __init__(self, private: PrivateNode, mails: Sequence[Document], episodes: int, patience: ToolSettings) -> None:
        self.node, self.mails = private, list(mails)
        self.turns = scripts(self.mails, episodes)
        self.locator = f"opensearch:{private.url}/mail"
        open_writer(self.locator).build(self.mails)
        self.calm = self.play(patience)
        expect(not self.calm.masked, f"faults on a healthy node: {set(self.calm.faults)}")

    def play(self, patience: ToolSettings, harm: Callable[[], None] | None = None, locator: str = "") -> Played:
        """``harm`` is done when a third of the turns is answered."""
        return play(open_index(locator or self.locator), self.turns, patience, harm=harm, after=len(self.turns))

    def lost(self, played: Played | None = None, mails: Sequence[Document] | None = None) -> str:
        """Counted, and Wrong unless 0: answers of ``played`` against the calm ones, and the mails that the index does
        not hold as they were built (every one is read), or holds beside them."""
        mails = self.mails if mails is None else mails
        with closing(open_index(self.locator)) as index:
            ids, known = list(index.ids()), {mail.id for mail in mails}
            missing = sum(index.read(mail.id) != mail for mail in mails) + sum(id not in known for id in ids)
            expect(index.stats().documents == len(ids), f"{index.stats().documents} mails counted, {len(ids)} listed")
        expect(missing == 0, f"{missing} of {len(mails)} mails differ")
        kept = f"{missing} of {len(mails):,} mails"
        if played is None:
            return kept
        lost = played.lost(self.calm)
        expect(lost == 0, f"{lost} answers differ")
        return f"{lost} of {sum(map(len, self.calm.answers))} answers, {kept}"

    def indexes(self) -> list[str]:
        """Those that begin with our name, sorted."""
        with closing(Connection(parse_address(self.locator))) as connection:
            return sorted(connection.ask(lambda client: client.indices.get(index="mail*")))
