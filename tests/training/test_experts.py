from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest
from company_play import Place, load, place

from corpus_index.sources.company import CompanyQuestion
from environments.protocol import ToolCall, parse, render_call
from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory
from rewards.judge import RuleJudge
from rewards.refusal import Refusal, check_proposal
from rewards.solver import solver_reward
from training.experts import ExpertStuck, Habits, Script, demonstrations, play, propose, solve
from training.seeds import seed_text

CONFIG = load()
HOPS = {1: 0.4, 2: 0.4, 3: 0.2}
COUNT = 160


@pytest.fixture(scope="module")
def firm() -> Place:
    return place()


def stream(firm: Place, seed: int, count: int, **changes: object) -> list[Trajectory]:
    settings: dict[str, object] = {
        "proposer_share": 0.5, "proposer_hops": HOPS, "solver_hops": HOPS, "seed_text": seed_text, "variants": 3,
    }  # fmt: skip
    experts = demonstrations(
        firm.company,
        firm.episode(CONFIG),
        firm.chat,
        random.Random(seed),
        **(settings | changes),  # type: ignore[arg-type]
    )
    return list(islice(experts, count))


@pytest.fixture(scope="module")
def shown(firm: Place) -> list[Trajectory]:
    return stream(firm, 0, COUNT)


@cache
def pool(firm: Place, hops: int) -> list[CompanyQuestion]:
    return firm.company.questions(hops, 10**9, at_most=True)


def of(shown: list[Trajectory], role: Role) -> list[Trajectory]:
    return [trajectory for trajectory in shown if trajectory.role is role]


def test_both_roles_and_all_hop_counts_are_shown(shown: list[Trajectory]) -> None:
    counts = Counter((trajectory.role, trajectory.task.hops) for trajectory in shown)
    assert set(counts) == {(role, hops) for role in Role for hops in HOPS}
    assert min(counts.values()) >= 5
    assert {trajectory.task.tool_variant for trajectory in shown} == {0, 1, 2}
    assert len({trajectory.uid for trajectory in shown}) == COUNT


def test_every_demonstration_ends_with_a_submission_and_no_error(shown: list[Trajectory]) -> None:
    for trajectory in shown:
        assert trajectory.stop_reason is StopReason.SUBMITTED
        assert not any(event.error for event in trajectory.events)


def test_every_solver_answers_the_question_and_opened_a_mail_for_each_hop(firm: Place, shown: list[Trajectory]) -> None:
    for trajectory in of(shown, Role.SOLVER):
        truth = firm.company.parse(trajectory.task.question)
        assert truth is not None
        assert truth.hops == trajectory.task.hops
        submission = trajectory.submission
        assert submission is not None
        assert submission.answer == truth.answer
        path = firm.company.follow(truth.entity, truth.chain)
        assert path is not None
        assert len(submission.evidence) == len(path)
        assert all(mail in fact.mails for mail, fact in zip(submission.evidence, path, strict=True))
        assert set(submission.evidence) <= set(trajectory.opened)


def test_every_solver_is_paid_for_a_right_answer(firm: Place, shown: list[Trajectory]) -> None:
    judge = RuleJudge(CONFIG.rewards.answers)
    solvers = of(shown, Role.SOLVER)
    for trajectory in solvers:
        truth = firm.company.parse(trajectory.task.question)
        assert truth is not None
        asked = replace(trajectory, task=replace(trajectory.task, answer=truth.answer, evidence=truth.evidence))
        pay = solver_reward(asked, judge, CONFIG.rewards.solver)
        assert pay.labels["verdict"] == "right", (truth, trajectory.submission)
        assert pay.total == CONFIG.rewards.solver.right
    assert solvers


def test_every_proposal_is_true_has_its_hops_and_its_evidence(firm: Place, shown: list[Trajectory]) -> None:
    for trajectory in of(shown, Role.PROPOSER):
        submission = trajectory.submission
        assert submission is not None
        truth = firm.company.parse(submission.question)
        assert truth is not None, submission
        assert truth.hops == trajectory.task.hops
        assert truth.answer == submission.answer
        path = firm.company.follow(truth.entity, truth.chain)
        assert path is not None
        assert all(mail in fact.mails for mail, fact in zip(submission.evidence, path, strict=True))
        assert set(submission.evidence) <= set(trajectory.opened)


def test_a_proposer_starts_from_its_seed_and_uses_it_if_it_tells_a_fact(firm: Place, shown: list[Trajectory]) -> None:
    telling = 0
    proposals = of(shown, Role.PROPOSER)
    for trajectory in proposals:
        seed = trajectory.task.seed.partition(" | ")[0]
        first = trajectory.events[0]
        assert (first.name, first.arguments) == ("read_mail", {"id": seed})
        assert trajectory.submission is not None
        if seed in firm.company.by_mail:
            telling += 1
            assert seed in trajectory.submission.evidence
    assert 0 < telling < len(proposals)  # chatter and outdated mails are seeds too


def test_the_checks_accept_nearly_all_expert_proposals(firm: Place, shown: list[Trajectory]) -> None:
    proposals = of(shown, Role.PROPOSER)
    refused: list[Trajectory] = []
    for trajectory in proposals:
        refusal = check_proposal(trajectory, firm.index.read, CONFIG.rewards.proposer.checks)
        if refusal is not None:
            # By chance the one asked about also sent the mail with the answer: with its header, one mail may do.
            assert refusal is Refusal.ONE_MAIL
            assert trajectory.task.hops > 1
            refused.append(trajectory)
    for trajectory in refused:
        assert trajectory.submission is not None
        truth = firm.company.parse(trajectory.submission.question)
        assert truth is not None
        mails = [firm.index.read(mail) for mail in trajectory.submission.evidence]
        stating = [mail for mail in mails if mail and trajectory.submission.answer in f"{mail.body} {mail.sender_name}"]
        told = [set(re.findall(r"\w+", f"{mail.sender_name} {mail.subject} {mail.body}")) for mail in stating]
        assert any(words.issuperset(truth.entity.split()) for words in told)
    assert 1 - len(refused) / len(proposals) >= 0.9


def test_the_loss_covers_the_assistant_turns_and_nothing_else(firm: Place, shown: list[Trajectory]) -> None:
    chat = firm.chat
    for trajectory in shown:
        said = [message["content"] for message in trajectory.messages if message["role"] == "assistant"]
        assert len(trajectory.turn_starts) == len(said) == len(trajectory.events)
        masked = 0
        for start, text in zip(trajectory.turn_starts, said, strict=True):
            end = start
            while end < len(trajectory.loss_mask) and trajectory.loss_mask[end]:
                end += 1
            turn = trajectory.token_ids[start:end]
            assert chat.text(turn) == text
            assert turn[-1] == chat.end_of_turn_id
            masked += end - start
        assert masked == trajectory.sampled_tokens
        assert trajectory.loss_mask[-1] == 1  # nothing follows a submission
        assert set(trajectory.logprobs) == {0.0}


def test_the_ids_are_those_of_the_rendered_conversation(firm: Place, shown: list[Trajectory]) -> None:
    for trajectory in shown:
        assert firm.chat.explain_drift(trajectory.token_ids, trajectory.messages) is None
        prompt = trajectory.token_ids[: trajectory.turn_starts[0]]
        assert list(prompt) == firm.chat.prompt_ids(trajectory.messages[:2])


def test_tool_results_are_those_of_the_real_tools(firm: Place, shown: list[Trajectory]) -> None:
    episode = firm.episode(CONFIG)
    for trajectory in shown[:20]:
        state, _ = episode.start(trajectory.task)
        results = [message["content"] for message in trajectory.messages if message["role"] == "tool"]
        texts = [message["content"] for message in trajectory.messages if message["role"] == "assistant"]
        for text, result in zip(texts, results, strict=False):
            observation, state = episode.step(state, text)
            assert observation.text == result


def test_a_seed_gives_the_same_demonstrations_and_another_seed_others(firm: Place, shown: list[Trajectory]) -> None:
    assert stream(firm, 0, 12) == shown[:12]
    assert [t.token_ids for t in stream(firm, 1, 12)] != [t.token_ids for t in shown[:12]]


def test_the_share_of_proposers_is_a_setting(firm: Place) -> None:
    assert {t.role for t in stream(firm, 0, 8, proposer_share=0.0)} == {Role.SOLVER}
    assert {t.role for t in stream(firm, 0, 8, proposer_share=1.0)} == {Role.PROPOSER}


def calls(trajectory: Trajectory) -> list[ToolCall]:
    turns = [parse(message["content"]) for message in trajectory.messages if message["role"] == "assistant"]
    return [call for call in turns if isinstance(call, ToolCall)]


def test_a_vague_expert_first_searches_without_the_keyword_and_still_answers(firm: Place) -> None:
    question = pool(firm, 2)[0]
    task = Task(role=Role.SOLVER, group_id="g", hops=2, question=question.question)

    def played(vague: float) -> Trajectory:
        script = solve(firm.company, question, random.Random(0), Habits(vague=vague))
        return play(firm.episode(CONFIG), firm.chat, task, script, "u")

    keen, vague = played(0.0), played(1.0)
    assert [c.name for c in calls(keen)] == ["search_keyword", "read_mail"] * 2 + ["submit"]
    searches = [c.arguments["keywords"] for c in calls(vague) if c.name == "search_keyword"]
    assert searches[0] == [question.entity]
    assert keen.submission is not None
    assert vague.submission is not None
    assert vague.submission.answer == keen.submission.answer == question.answer


def test_a_slip_is_mended_and_only_the_mending_is_trained(firm: Place) -> None:
    slipped = stream(firm, 3, 60, habits=Habits(vague=0.0, slip=1.0))
    kinds: Counter[str] = Counter()
    for trajectory in slipped:
        truth = firm.company.parse(trajectory.task.question) if trajectory.role is Role.SOLVER else None
        assert trajectory.submission is not None
        assert truth is None or trajectory.submission.answer == truth.answer
        trained = [firm.chat.text(turn) for turn in _trained_turns(trajectory)]
        played = [message["content"] for message in trajectory.messages if message["role"] == "assistant"]
        assert trained[-1] == played[-1]
        slips = [parse(text) for text in (Counter(played) - Counter(trained)).elements()]
        assert len(slips) + len(trained) == len(played) == len(trajectory.events)
        for slip in slips:
            assert isinstance(slip, ToolCall)
            if slip.name == "search_keyword":
                kinds["name"] += 1
            else:
                kinds["hit" if firm.index.read(slip.arguments["id"]) else "id"] += 1
    assert set(kinds) == {"name", "hit", "id"}
    assert not any(event.error for t in stream(firm, 3, 20, habits=Habits(slip=0.0)) for event in t.events)


def _trained_turns(trajectory: Trajectory) -> list[tuple[int, ...]]:
    turns: list[tuple[int, ...]] = []
    for start in trajectory.turn_starts:
        end = trajectory.loss_mask.index(0, start) if 0 in trajectory.loss_mask[start:] else len(trajectory.loss_mask)
        turns.append(trajectory.token_ids[start:end])
    return turns


def test_a_wanderer_makes_the_first_hop_and_is_right_only_by_chance(firm: Place) -> None:
    wandering = stream(firm, 4, 120, proposer_share=0.0, solver_hops={2: 1.0}, habits=Habits(vague=0.0, wander=1.0))
    right = 0
    for trajectory in wandering:
        truth = firm.company.parse(trajectory.task.question)
        assert truth is not None
        assert trajectory.submission is not None
        first, last = trajectory.submission.evidence
        assert first in firm.company.facts[truth.chain[0], truth.entity].mails
        assert any(fact.value == trajectory.submission.answer for fact in firm.company.by_mail[last])
        right += trajectory.submission.answer == truth.answer
    # One of 1 (team, vendor), 4 (owner, project) or 5 (manager) turnings: 5 of 15 kinds on average.
    assert 0.2 < right / len(wandering) < 0.5
    straight = stream(firm, 4, 30, proposer_share=0.0, solver_hops={1: 1.0}, habits=Habits(vague=0.0, wander=1.0))
    assert all(
        t.submission is not None and (q := firm.company.parse(t.task.question)) and t.submission.answer == q.answer
        for t in straight
    )


def test_relation_weights_turn_the_questions_of_both_roles(firm: Place) -> None:
    def shares(weights: dict[str, float], proposers: float) -> float:
        asked = stream(firm, 5, 150, proposer_share=proposers, relation_weights=weights)
        told = [
            {fact.relation for fact in firm.company.by_mail.get((t.task.seed or "").split(" ")[0], ())}
            if t.role is Role.PROPOSER
            else {truth.chain[-1]}
            if (truth := firm.company.parse(t.task.question))
            else set[str]()
            for t in asked
        ]
        return sum("phone" in relations for relations in told) / len(told)

    for proposers in (0.0, 1.0):
        assert shares({"phone": 20.0}, proposers) > 3 * shares({}, proposers)


def test_an_expert_that_cannot_find_its_mail_is_stuck_and_not_shown() -> None:
    whole = place()
    question = pool(whole, 1)[0]
    path = whole.company.follow(question.entity, question.chain)
    assert path is not None
    gap = place(without=frozenset(path[0].mails))
    task = Task(role=Role.SOLVER, group_id="g", question=question.question)
    script = solve(gap.company, question, random.Random(0))
    with pytest.raises(ExpertStuck, match=question.entity):
        play(gap.episode(CONFIG), gap.chat, task, script, "u")
    few = stream(gap, 0, 20, proposer_share=0.0)
    assert all(t.stop_reason is StopReason.SUBMITTED for t in few)


def test_a_proposer_is_stuck_where_no_chain_of_that_length_exists() -> None:
    firm = place(projects=4)  # four people and projects: a chain without a circle has at most 8 links
    mail = next(m for m in firm.company.documents() if m.id in firm.company.by_mail)
    task = Task(role=Role.PROPOSER, group_id="g", hops=2, seed=seed_text(mail))
    with pytest.raises(ExpertStuck, match="no 9-hop chain"):
        play(firm.episode(CONFIG), firm.chat, task, propose(firm.company, mail, 9, random.Random(0)), "u")


def test_a_refused_call_or_an_episode_that_runs_out_is_no_demonstration(firm: Place) -> None:
    task = Task(role=Role.SOLVER, group_id="g", question="Who owns it?")

    def script(*texts: str) -> Script:
        yield from (text for text in texts)  # a generator, which takes what is sent

    with pytest.raises(ExpertStuck, match="no mail with id"):
        play(firm.episode(CONFIG), firm.chat, task, script(render_call("read_mail", {"id": "nope"})), "u")
    endless = [render_call("search_keyword", {"keywords": ["desk"]})] * 20
    with pytest.raises(ExpertStuck, match="max_turns"):
        play(firm.episode(CONFIG), firm.chat, task, script(*endless), "u")


def test_an_even_proposer_asks_all_sorts_alike(firm: Place) -> None:
    def shares(even: bool) -> list[int]:
        played = stream(firm, 5, 150, proposer_share=1.0, proposer_hops={2: 1.0}, even_sorts=even)
        asked = [firm.company.parse(t.submission.question) for t in played if t.submission is not None]
        return sorted(Counter(truth.chain for truth in asked if truth is not None).values())

    even, plain = shares(True), shares(False)
    assert len(even) >= len(plain)
    assert sum(even[-3:]) < sum(plain[-3:])  # the three favourites
    assert sum(even[:3]) > sum(plain[:3])
