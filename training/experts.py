"""Scripted experts for the synthetic company: they know the facts, yet must find the mails with the real tools.

A script is a generator: it yields the text of an assistant turn and receives the episode state after that turn. Playing
it through the same ``Episode`` and ``ChatFormat`` as the policy gives SFT trajectories whose tool results are real.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from corpus_index.document import Document
from corpus_index.sources.company import Company, CompanyQuestion, Fact, chains, phrase
from corpus_index.sources.company_words import RELATIONS
from environments.apart import spoken
from environments.chat_format import ChatFormat
from environments.episode import Episode, EpisodeState
from environments.protocol import render_call
from environments.recorder import Recorder
from environments.task import Role, Task
from environments.trajectory import Trajectory

Script = Generator[str, EpisodeState, None]
_T = TypeVar("_T")


class ExpertStuck(Exception):
    """The mail an expert needs did not come up; the episode is thrown away."""


class Slip(str):
    """A turn that is played but not imitated: a mistake, of which the policy shall learn the repair alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How far the experts are from the shortest way; all are probabilities.

    ``vague``: a look-up whose first query lacks the keyword. ``slip``: a look-up with a mistake in it (see ``Slip``).
    ``wander``: a Solver that takes a random turning after the first hop and submits what it finds there, which is right
    only by chance; it shows that one can go on from what was found, not where to.
    """

    vague: float = 0.08
    slip: float = 0.0
    wander: float = 0.0


DEFAULT_HABITS = Habits()


def _find(company: Company, fact: Fact, rng: random.Random, habits: Habits) -> Generator[str, EpisodeState, str]:
    """Search for a fact and open a mail that states it."""
    keyword = RELATIONS[fact.relation].keyword
    slip = rng.choice(("name", "hit", "id")) if rng.random() < habits.slip else ""
    if slip == "name":
        others = next(names for names in company.entities.values() if fact.subject in names)
        yield Slip(render_call("search_keyword", {"keywords": [rng.choice(others), keyword]}))
    queries = [[fact.subject, keyword]]
    if rng.random() < habits.vague:
        queries.insert(0, [fact.subject])
    for query in queries:
        state = yield render_call("search_keyword", {"keywords": query})
        shown = state.events[-1].shown_ids
        mail = next((i for i in shown if i in fact.mails), None)
        if mail is None:
            continue
        wrong = [i for i in shown if i not in fact.mails]
        if slip == "id":
            yield Slip(render_call("read_mail", {"id": mail[:-2] + f"{rng.randrange(100):02d}"}))
        elif slip == "hit" and wrong:
            yield Slip(render_call("read_mail", {"id": rng.choice(wrong)}))
        yield render_call("read_mail", {"id": mail})
        return mail
    raise ExpertStuck(f"no mail about {fact.subject} {fact.relation}")


def solve(company: Company, question: CompanyQuestion, rng: random.Random, habits: Habits = DEFAULT_HABITS) -> Script:
    """Look up one fact after the other, then submit the last value."""
    chain = question.chain
    if rng.random() < habits.wander:
        chain = rng.choice([other for other in chains(len(chain)) if other[0] == chain[0]])
    path = company.follow(question.entity, chain)
    if path is None:
        raise ExpertStuck(question.question)
    evidence: list[str] = []
    for fact in path:
        evidence.append((yield from _find(company, fact, rng, habits)))
    yield render_call("submit", {"answer": path[-1].value, "evidence": evidence})


def propose(
    company: Company,
    seed: Document,
    hops: int,
    rng: random.Random,
    habits: Habits = DEFAULT_HABITS,
    asked: Mapping[tuple[str, ...], int] | None = None,
) -> Script:
    """Read the seed mail, complete a chain of ``hops`` facts around it, and ask for its last value.

    With ``asked``, how often each chain was asked so far, the rare ones are preferred among those the seed allows.
    """
    yield render_call("read_mail", {"id": seed.id})
    known = company.by_mail.get(seed.id, ())
    options = _chains_around(company, known, hops) if known else _chains_from_text(company, seed, hops)
    if not options:
        raise ExpertStuck(f"no {hops}-hop chain around mail {seed.id}")
    if asked is None:
        entity, chain = rng.choice(options)
    else:
        entity, chain = rng.choices(options, [1 / (1 + asked.get(chain, 0)) ** 2 for _, chain in options])[0]
    path = company.follow(entity, chain)
    assert path is not None
    mails: dict[int, str] = {k: seed.id for k, fact in enumerate(path) if fact in known}
    start = min(mails, default=0)
    # Forward from the seed's link as the question will be read; links before it are found backwards, from their value.
    for k in [*range(start, len(path)), *range(start - 1, -1, -1)]:
        if k not in mails:
            fact = path[k]
            mails[k] = yield from _find(company, fact if k > start or not known else _backwards(fact), rng, habits)
    yield render_call(
        "submit",
        {
            "question": phrase(entity, chain, rng),
            "answer": path[-1].value,
            "evidence": [mails[k] for k in sorted(mails)],
        },
    )


def _backwards(fact: Fact) -> Fact:
    return Fact(fact.relation, fact.value, fact.subject, fact.mails)


def _chains_around(company: Company, known: Sequence[Fact], hops: int) -> list[tuple[str, tuple[str, ...]]]:
    """Chains of the given length in which one of the known facts is a link."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for fact in known:
        for chain in chains(hops):
            for place, relation in enumerate(chain):
                if relation != fact.relation:
                    continue
                for entity in _origins(company, fact.subject, chain[:place]):
                    path = company.follow(entity, chain)
                    # Two links told by one mail make a question of one mail.
                    if path is not None and len({f.mails for f in path}) == hops and path[place] == fact:
                        found.append((entity, chain))
    return found


def _origins(company: Company, entity: str, chain: tuple[str, ...]) -> list[str]:
    """Entities from which ``chain`` leads to ``entity``."""
    ends = [entity]
    for relation in reversed(chain):
        ends = [subject for end in ends for subject in company.reverse.get((relation, end), ())]
    return ends


def _chains_from_text(company: Company, mail: Document, hops: int) -> list[tuple[str, tuple[str, ...]]]:
    text = f"{mail.subject} {mail.body}"
    named = [(kind, name) for kind, names in company.entities.items() for name in names if name in text]
    return [
        (name, chain)
        for kind, name in named
        for chain in chains(hops)
        if RELATIONS[chain[0]].domain == kind
        and (path := company.follow(name, chain)) is not None
        and len({f.mails for f in path}) == hops
    ]


def play(episode: Episode, chat: ChatFormat, task: Task, script: Script, uid: str) -> Trajectory:
    """Run a script to its end. Raises ExpertStuck where a needed mail does not come up or a turn is refused."""
    state, messages = episode.start(task)
    recorder = Recorder(chat.prompt_ids(messages))
    messages = list(messages)
    text = next(script)
    while True:
        slip = isinstance(text, Slip)
        text = spoken(text, task.role, episode.settings.outputs)
        ids = chat.turn_ids(text)
        if slip:
            recorder.observed(ids)
        else:
            recorder.sampled(ids, [0.0] * len(ids))
        observation, state = episode.step(state, text)
        messages.append({"role": "assistant", "content": text})
        if observation.done:
            break
        if not slip and state.events and state.events[-1].error:
            raise ExpertStuck(f"the expert's own call was refused: {state.events[-1].error}")
        recorder.observed(chat.observation_ids(observation.text, ended=True))
        messages.append({"role": "tool", "content": observation.text})
        text = script.send(state)
    if state.submission is None:
        raise ExpertStuck(f"episode ended with {state.stop_reason}")
    return recorder.trajectory(uid=uid, state=state, policy_version=-1, messages=messages)


def demonstrations(
    company: Company,
    episode: Episode,
    chat: ChatFormat,
    rng: random.Random,
    *,
    proposer_share: float,
    proposer_hops: dict[int, float],
    solver_hops: dict[int, float],
    seed_text: Callable[[Document], str],
    variants: int = 1,
    habits: Habits = DEFAULT_HABITS,
    relation_weights: Mapping[str, float] = MappingProxyType({}),
    even_sorts: bool = False,
) -> Generator[Trajectory, None, None]:
    """Endless expert trajectories of both roles over one company. Hop mixes are ``{hops: share}``.

    ``relation_weights`` (1 where a relation is not named) weigh questions by the last relation of their chain, and the
    Proposer's seed mails by what they tell. ``even_sorts``: the Proposer's expert asks all sorts of question alike.
    """
    mails = company.documents()
    pools = {h: company.questions(h, 10**9, seed=rng.randrange(10**6), at_most=True) for h in solver_hops}

    def weight(*relations: str) -> float:
        return max((relation_weights.get(relation, 1.0) for relation in relations), default=1.0)

    def draw(items: Sequence[_T], weights: list[float]) -> _T:
        # Without weights it is the draw that the recorded runs were made with.
        return rng.choices(items, weights)[0] if relation_weights else rng.choice(items)

    told = [weight(*(fact.relation for fact in company.by_mail.get(mail.id, ()))) for mail in mails]
    asked = {h: [weight(question.chain[-1]) for question in pool] for h, pool in pools.items()}
    count = 0
    proposed: Counter[tuple[str, ...]] = Counter()
    while True:
        uid = f"expert/{company.spec.seed}/{count}"
        count += 1
        variant = rng.randrange(variants)
        if rng.random() < proposer_share:
            hops = rng.choices(list(proposer_hops), list(proposer_hops.values()))[0]
            seed = draw(mails, told)
            task = Task(role=Role.PROPOSER, group_id=uid, hops=hops, seed=seed_text(seed), tool_variant=variant)
            script = propose(company, seed, hops, rng, habits, proposed if even_sorts else None)
        else:
            hops = rng.choices(list(solver_hops), list(solver_hops.values()))[0]
            question = draw(pools[hops], asked[hops])
            task = Task(role=Role.SOLVER, group_id=uid, hops=hops, question=question.question, tool_variant=variant)
            script = solve(company, question, rng, habits)
        try:
            played = play(episode, chat, task, script, uid)
        except ExpertStuck:
            continue
        if even_sorts and played.role is Role.PROPOSER and played.submission is not None:
            parsed = company.parse(played.submission.question)
            assert parsed is not None  # the expert asks in the company's wordings
            proposed[parsed.chain] += 1
        yield played
