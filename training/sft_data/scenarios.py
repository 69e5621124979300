"""Scenario rewrites by templates: a pattern of how searches really go, played through the tools.

A pattern adds calls to an episode, or only words. The extra calls are run for what they would show, and the pattern is
given up where that does not fit (a "failing" search that finds the mail, a second candidate that states the answer).
Then the whole episode is played again from the start, so that every result in the row is real; the calls that were
there must bring what they brought before.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from environments.chat_rows import ChatRow
from environments.episode import Episode
from environments.protocol import SUBMIT, ToolCall, parse, render_call
from environments.tool_schemas import READ_MAIL
from environments.tools import ToolOutcome
from rewards.answers import mentions
from training.config_trajectories import Pattern, Thoughts
from training.sft_data.filters import StageOutcome
from training.sft_data.rewriting import relabelled
from training.sft_data.talk import Talk
from training.sft_data.thoughts import calls_of, keeps_all, styled, thoughts_of
from training.sft_data.wordings import known_language, said

KEYWORD, BOOL = "search_keyword", "search_bool"


@dataclass(frozen=True, slots=True)
class Beat:
    """One turn: what is thought, what is called, and the mails that a known call showed (none where it failed)."""

    thought: str
    call: ToolCall
    shown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scene:
    """What a pattern works with: ``ask`` runs a tool on the episode's mails, ``say`` finds words."""

    beats: tuple[Beat, ...]
    answer: str
    evidence: tuple[str, ...]
    enabled: tuple[str, ...]
    ask: Callable[[str, Mapping[str, Any]], ToolOutcome]
    say: Callable[..., str]
    rng: random.Random


Played = Callable[[Scene], "tuple[Beat, ...] | None"]


def play_scenarios(
    rows: Sequence[ChatRow],
    patterns: Sequence[Pattern | None],
    episode: Episode,
    style: Thoughts,
    fits: Callable[[ChatRow], bool],
    seed: int,
) -> StageOutcome:
    """Rows in their patterns; one that does not fit (``no_<pattern>``) stays as it was. Raises IndexUnavailable."""
    notes: Counter[str] = Counter()
    kept: list[ChatRow] = []
    for row, pattern in zip(rows, patterns, strict=True):
        changed = None
        if pattern is not None:
            changed = play_pattern(row, pattern, episode, style, random.Random(f"{seed}/play/{row.id}"))
            changed = changed if changed is not None and fits(changed) else None
            notes[pattern if changed is not None else f"no_{pattern}"] += 1
        kept.append(row if changed is None else relabelled(changed, scenario=pattern or ""))
    return StageOutcome(kept, notes=notes)


def play_pattern(
    row: ChatRow, pattern: Pattern, episode: Episode, style: Thoughts, rng: random.Random
) -> ChatRow | None:
    """The episode in this pattern, or None where it does not fit. Raises IndexUnavailable."""
    done = row.outline()
    if done.submission is None or (style == "none" and pattern == "ask_missing"):
        return None
    language = known_language(row.labels.get("language", "en"))

    def ask(name: str, arguments: Mapping[str, Any]) -> ToolOutcome:
        return episode.toolbox.run(ToolCall(name, dict(arguments)), row.task.scope)

    def say(key: str, **slots: str) -> str:
        return said(language, key, rng, **slots)

    enabled = episode.toolbox.settings.enabled
    scene = Scene(_beats(row), done.submission.answer, done.submission.evidence, enabled, ask, say, rng)
    beats = _PATTERNS[pattern](scene)
    return None if beats is None else _replayed(row, beats, episode, style)


def _replayed(row: ChatRow, beats: Sequence[Beat], episode: Episode, style: Thoughts) -> ChatRow | None:
    """None where the episode does not come to the same end: too many turns, or the corpus answers differently."""
    talk = Talk(episode, row.task)
    for beat in beats:
        if talk.state.done:
            return None
        talk.say(styled(render_call(beat.call.name, beat.call.arguments), beat.thought, style))
    if talk.state.submission is None or talk.state.submission != row.outline().submission:
        return None
    played = talk.row(row.id)
    changed = played.model_copy(update={"entities": row.entities, "labels": row.labels})
    return changed if keeps_all(row, changed) else None


def _beats(row: ChatRow) -> tuple[Beat, ...]:
    calls = [parse(call) for call in calls_of(row)]
    turns = zip(thoughts_of(row), calls, row.outline().events, strict=True)
    return tuple(Beat(thought, call, event.shown_ids) for thought, call, event in turns if isinstance(call, ToolCall))


def _change_plan(scene: Scene) -> tuple[Beat, ...] | None:
    """A search with half of the words comes first, and misses."""
    searches = _keyword_searches(scene.beats)
    if not searches:
        return None
    place = scene.rng.choice(searches)
    about, wanted = _words(scene.beats[place])
    for poor in ([wanted], [about.split()[-1], wanted], [about]):
        outcome = scene.ask(KEYWORD, {"keywords": poor})
        if (
            poor != scene.beats[place].call.arguments["keywords"]
            and not outcome.error
            and not set(outcome.shown_ids) & set(scene.evidence)
        ):
            first = Beat(scene.say("first_plan", a=" ".join(poor)), ToolCall(KEYWORD, {"keywords": poor}))
            again = replace(scene.beats[place], thought=scene.say("plan_fails", a=about, b=wanted))
            return (*scene.beats[:place], first, again, *scene.beats[place + 1 :])
    return None


def _refine_query(scene: Scene) -> tuple[Beat, ...] | None:
    """A wide search is narrowed to the mail that is read next."""
    if BOOL not in scene.enabled:
        return None
    for place in scene.rng.sample(found := _read_after_search(scene.beats), len(found)):
        search, opening = scene.beats[place], scene.beats[place + 1]
        about, wanted = _words(search)
        clauses = {"must": [{"phrase": about, "field": "any"}, {"match": wanted, "field": "subject"}]}
        outcome = scene.ask(BOOL, clauses)
        wide, narrow = search.shown, outcome.shown_ids
        if not outcome.error and opening.call.arguments["id"] in narrow and len(narrow) < len(wide):
            refine = Beat(scene.say("refine", a=about, b=wanted, n=str(len(wide))), ToolCall(BOOL, clauses))
            left = replace(opening, thought=scene.say("refined", id=opening.call.arguments["id"]))
            return (*scene.beats[: place + 1], refine, left, *scene.beats[place + 2 :])
    return None


def _compare(scene: Scene) -> tuple[Beat, ...] | None:
    """Another hit is read first; it does not state the answer."""
    for place in scene.rng.sample(found := _read_after_search(scene.beats), len(found)):
        search, opening = scene.beats[place], scene.beats[place + 1]
        right = opening.call.arguments["id"]
        opened = {mail_id for beat in scene.beats if beat.call.name == READ_MAIL for mail_id in beat.shown}
        for other in (mail_id for mail_id in search.shown if mail_id not in opened):
            outcome = scene.ask(READ_MAIL, {"id": other})
            if outcome.error or mentions(outcome.text, scene.answer):
                continue
            slots = {"id": right, "other": other}
            look = Beat(scene.say("candidate", **slots), ToolCall(READ_MAIL, {"id": other}))
            then = replace(opening, thought=scene.say("other_candidate", **slots))
            return (*scene.beats[: place + 1], look, then, *scene.beats[place + 2 :])
    return None


def _verify(scene: Scene) -> tuple[Beat, ...] | None:
    """The answer is searched for, and a mail of the evidence comes up."""
    *before, last = scene.beats
    searches = _keyword_searches(before)
    if not searches or last.call.name != SUBMIT:
        return None
    query = {"keywords": [scene.answer, _words(before[searches[-1]])[0]]}
    outcome = scene.ask(KEYWORD, query)
    again = next((mail_id for mail_id in outcome.shown_ids if mail_id in scene.evidence), None)
    if outcome.error or again is None:
        return None
    check = Beat(scene.say("check", answer=scene.answer), ToolCall(KEYWORD, query))
    return (*before, check, replace(last, thought=scene.say("checked", id=again, answer=scene.answer)))


def _ask_missing(scene: Scene) -> tuple[Beat, ...] | None:
    """Words alone: before a later search, what is known and what is not."""
    changed = list(scene.beats)
    for place in _keyword_searches(scene.beats):
        read = [mail_id for beat in scene.beats[:place] if beat.call.name == READ_MAIL for mail_id in beat.shown]
        if read:
            about, wanted = _words(scene.beats[place])
            changed[place] = replace(scene.beats[place], thought=scene.say("missing", id=read[-1], a=about, b=wanted))
    return tuple(changed) if tuple(changed) != scene.beats else None


def _keyword_searches(beats: Sequence[Beat]) -> list[int]:
    """Places of searches that found something by two keywords or more: a thing, and what is wanted of it."""
    return [
        place
        for place, beat in enumerate(beats)
        if beat.call.name == KEYWORD and beat.shown and len(beat.call.arguments["keywords"]) > 1
    ]


def _read_after_search(beats: Sequence[Beat]) -> list[int]:
    """Places of such searches whose next turn opens one of several hits."""
    return [
        place
        for place in _keyword_searches(beats[:-1])
        if beats[place + 1].call.name == READ_MAIL
        and len(beats[place].shown) > 1
        and set(beats[place + 1].shown) & set(beats[place].shown)
    ]


def _words(search: Beat) -> tuple[str, str]:
    first, *_, last = search.call.arguments["keywords"]
    return first, last


_PATTERNS: Mapping[Pattern, Played] = {
    "change_plan": _change_plan,
    "refine_query": _refine_query,
    "compare": _compare,
    "verify": _verify,
    "ask_missing": _ask_missing,
}
