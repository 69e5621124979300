"""The scripted experts of a company as a teacher: they know the facts, and say in a few words what they do."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from corpus_index.sources.company import Company
from environments.episode import Episode, EpisodeState
from environments.protocol import SUBMIT, ToolCall, parse
from environments.task import Role
from environments.tool_schemas import READ_MAIL
from training.config_trajectories import Thoughts
from training.experts import ExpertStuck, Script, propose, solve
from training.sft_data.talk import Talk
from training.sft_data.tasks import TaughtTask
from training.sft_data.teachers import Solved, Try
from training.sft_data.thoughts import styled
from training.sft_data.wordings import said


class ExpertTeacher:
    name = "expert"

    def __init__(self, company: Company, episode: Episode, *, seed: int, thoughts: Thoughts, language: str) -> None:
        self._company = company
        self._episode = episode
        self._seed = seed
        self._thoughts: Thoughts = thoughts
        self._language = language

    def play(self, tries: Sequence[Try], landed: Callable[[Solved], None]) -> None:
        for one in tries:
            landed(self._played(one))

    def _played(self, one: Try) -> Solved:
        rng = random.Random(f"{self._seed}/expert/{one.uid}")
        try:
            words = random.Random(f"{self._seed}/words/{one.uid}")  # of its own: no language changes the way
            script = narrated(self._script(one.taught, rng), words, self._thoughts, self._language)
            talk = _talked(Talk(self._episode, one.taught.task), script)
        except ExpertStuck:
            return Solved(uid=one.uid, trouble="stuck")
        return Solved(uid=one.uid, row=talk.row(one.uid))

    def _script(self, taught: TaughtTask, rng: random.Random) -> Script:
        task = taught.task
        if task.role is Role.PROPOSER:
            if taught.seed is None:
                raise ExpertStuck(f"the seed mail of {task.group_id} cannot be read")
            return propose(self._company, taught.seed, task.hops, rng)
        question = self._company.parse(task.question)
        if question is None:
            raise ExpertStuck(f"the experts do not understand {task.question!r}")
        return solve(self._company, question, rng)


def _talked(talk: Talk, script: Script) -> Talk:
    """The script played to its end. Raises ExpertStuck where a turn of it fails or nothing is handed in."""
    text = next(script)
    while not talk.say(text).done:
        if talk.state.errors:
            raise ExpertStuck(f"the expert's own call was refused: {talk.state.events[-1].error}")
        text = script.send(talk.state)
    if talk.state.submission is None:
        raise ExpertStuck(f"the episode ended with {talk.state.stop_reason}")
    return talk


def narrated(script: Script, rng: random.Random, style: Thoughts, language: str) -> Script:
    """The script with a thought before each call."""
    state: EpisodeState | None = None
    text = next(script)
    while True:
        call = parse(text)
        assert isinstance(call, ToolCall), "a script writes its own calls"
        state = yield styled(text, _thought(call, state, rng, language), style)
        text = script.send(state)


def _thought(call: ToolCall, state: EpisodeState | None, rng: random.Random, language: str) -> str:
    opened = state.opened if state is not None else ()
    if call.name == SUBMIT:
        return said(language, "ask" if "question" in call.arguments else "answer", rng, answer=call.arguments["answer"])
    if call.name == READ_MAIL:
        return said(language, "open" if state is not None else "seed", rng, id=call.arguments["id"])
    about, *wanted = call.arguments["keywords"]
    if not wanted:
        return said(language, "alone", rng, a=about)
    return said(language, "next" if opened else "start", rng, a=about, b=wanted[-1])
