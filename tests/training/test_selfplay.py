from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest
from company_play import ROOT, Place, load, place
from scripted_play import (
    Act,
    Proposal,
    Script,
    ScriptedEngine,
    board,
    expert,
    group_number,
    guess,
    half_right,
    mute,
    true_proposal,
)

from corpus_index.backends.base import IndexStats, IndexUnavailable, SearchIndex, SearchResult
from corpus_index.document import Document
from corpus_index.query import KeywordQuery, Query
from corpus_index.sources.company import chains
from environments.protocol import render_call
from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory
from evaluation.evaluator import company_questions
from rewards.judge import RuleJudge
from training.config import Config
from training.config_load import load_config
from training.engines.base import Weighted
from training.game import Board, Truth, draw_hops, truth_metrics, truth_of
from training.loop_state import LoopState
from training.pool import QuestionPool, sort_of
from training.samples import Record
from training.seeds import seed_text
from training.selfplay import StepReport, train_step

JUDGE = RuleJudge()


@pytest.fixture(scope="module")
def firm() -> Place:
    return place()


def config(*overrides: str) -> Config:
    return load(
        "grpo.num_generations_per_prompt=4", "selfplay.proposer_prompts_per_step=3", "selfplay.max_solver_groups=20",
        "selfplay.hops={1: 1.0}", "selfplay.tool_variants=1", "tools.retries=0", *overrides,
    )  # fmt: skip


def run(
    firm: Place, settings: Config, act: Act, *, step: int = 1, index: SearchIndex | None = None,
    shift: Callable[[Trajectory], float] = lambda _: 0.0, pool: QuestionPool | None = None,
) -> tuple[ScriptedEngine, StepReport]:  # fmt: skip
    engine = ScriptedEngine(firm, firm.episode(settings, index), act, shift)
    state = replace(LoopState.load(settings, {}), pool=QuestionPool() if pool is None else pool)
    return engine, train_step(engine, board(firm), JUDGE, settings, step, state)


def by_group(weighted: Sequence[Weighted]) -> dict[str, list[Weighted]]:
    groups: dict[str, list[Weighted]] = defaultdict(list)
    for each in weighted:
        groups[each.trajectory.group_id].append(each)
    return groups


def rewards(report: StepReport) -> dict[str, list[tuple[float, bool]]]:
    """Group to (reward, masked), in order."""
    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for record in report.samples:
        pay = cast("dict[str, object]", record["reward"])
        found[str(record["group_id"])].append((cast("float", pay["total"]), bool(pay["masked"])))
    return found


def labels(record: Record) -> dict[str, object]:
    return cast("dict[str, object]", cast("dict[str, object]", record["reward"])["labels"])


# --- groups and prompts -----------------------------------------------------------------------------------------------


def test_proposer_groups_have_their_own_seeds_and_the_sizes_asked_for(firm: Place) -> None:
    settings = config("selfplay.proposer_prompts_per_step=5", "selfplay.proposer_generations=3")
    engine, _ = run(firm, settings, half_right(firm))
    tasks, sampling = engine.rollouts[0]
    assert [task.group_id for task in tasks] == [f"1/p{k}" for k in range(5) for _ in range(3)]
    assert {task.role for task in tasks} == {Role.PROPOSER}
    assert len({task.seed for task in tasks}) == 5
    assert not sampling.greedy
    assert sampling.temperature == 1.0


def test_members_of_a_group_share_their_prompt_to_the_last_byte(firm: Place) -> None:
    engine, _ = run(firm, config("selfplay.tool_variants=4", "tools.describe=full"), half_right(firm))
    prompts: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    tasks: dict[str, set[Task]] = defaultdict(set)
    for trajectory in engine.played:
        prompts[trajectory.group_id].add(trajectory.token_ids[: trajectory.turn_starts[0]])
        tasks[trajectory.group_id].add(trajectory.task)
    assert {len(each) for each in prompts.values()} == {1}
    assert {len(each) for each in tasks.values()} == {1}
    assert len(set.union(*prompts.values())) == len(prompts) == 6  # 3 Proposer groups, 3 questions


def test_solver_tasks_carry_the_proposal_and_never_show_its_key(firm: Place) -> None:
    engine, _ = run(firm, config(), half_right(firm))
    proposals = {trajectory.uid: trajectory for trajectory in engine.played if trajectory.role is Role.PROPOSER}
    solvers = [trajectory for trajectory in engine.played if trajectory.role is Role.SOLVER]
    assert len(solvers) == 3 * 4
    for trajectory in solvers:
        parent = proposals[trajectory.task.parent].submission
        assert parent is not None
        task = trajectory.task
        assert (task.question, task.answer, task.evidence) == (parent.question, parent.answer, parent.evidence)
        prompt = "".join(message["content"] for message in trajectory.messages[:2])
        assert task.answer not in prompt
        assert task.evidence[0] not in prompt


def test_equal_questions_share_one_solver_group(firm: Place) -> None:
    same = true_proposal(firm, 0)

    def act(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return same.script() if group_number(task) < 2 else true_proposal(firm, 5).script()
        return expert(firm, task) if member == 0 else guess()

    engine, report = run(firm, config(), act)
    asked = engine.rollouts[1][0]
    assert len(asked) == 2 * 4
    assert {task.question for task in asked} == {same.question, true_proposal(firm, 5).question}
    assert report.metrics["proposals/valid_rate"] == 1.0
    assert report.metrics["proposals/distinct_rate"] == pytest.approx(2 / 12)
    assert report.metrics["proposals/unsolved_budget"] == 0.0
    # All twelve are paid by their question's own quarter of right answers: flat_top(1/4) = 1 - 0.05 / 0.25.
    paid = [pay for group in rewards(report).items() if "/p" in group[0] for pay in group[1]]
    assert paid == [(pytest.approx(0.8), False)] * 12


def test_one_question_with_two_keys_is_two_questions(firm: Place) -> None:
    project = firm.company.entities["project"][0]
    room, time = firm.company.facts["room", project], firm.company.facts["time", project]
    question = f"Which room is the review of {project} in?"

    def act(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return Proposal(question, (room, time)[member % 2].value, (room.mails[0],)).script()
        return guess(room.value)

    engine, report = run(firm, config(), act)
    assert {task.answer for task in engine.rollouts[1][0]} == {room.value, time.value}
    assert len(engine.rollouts[1][0]) == 2 * 4
    assert report.metrics["reward/solver/total"] == 0.5
    assert report.metrics["groups/solver/zero_variance"] == 2.0


def test_questions_beyond_the_cap_are_counted_and_left_out_of_their_group(firm: Place) -> None:
    def act(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return true_proposal(firm, 4 * group_number(task) + member).script()
        return expert(firm, task) if member % 2 else guess()

    engine, report = run(firm, config("selfplay.max_solver_groups=5"), act)
    tasks = engine.rollouts[1][0]
    assert len(tasks) == 5 * 4
    assert {task.group_id for task in tasks} == {f"1/s{k}" for k in range(5)}
    assert len({task.question for task in tasks}) == 5
    assert report.metrics["proposals/unsolved_budget"] == 12 - 5
    unsent = [record for record in report.samples if labels(record).get("unsolved_budget")]
    assert len(unsent) == 7
    for record in unsent:
        assert cast("dict[str, object]", record["reward"])["masked"]
        assert record["advantage"] is None
    asked = {str(cast("dict[str, object]", record["submission"])["question"]) for record in unsent}
    assert asked.isdisjoint(task.question for task in tasks)


def test_the_cap_leaves_out_the_pattern_that_is_there_most(firm: Place) -> None:
    desk = firm.company.facts["desk", firm.company.entities["person"][0]]

    def act(task: Task, member: int) -> Script:
        if task.role is not Role.PROPOSER:
            return guess()
        if (group_number(task), member) == (2, 3):
            return Proposal(f"Where does {desk.subject} sit?", desk.value, (desk.mails[-1],)).script()
        return true_proposal(firm, 4 * group_number(task) + member).script()

    for step in range(1, 4):
        engine, _ = run(firm, config("selfplay.max_solver_groups=2"), act, step=step)
        assert f"Where does {desk.subject} sit?" in {task.question for task in engine.rollouts[1][0]}


def test_questions_of_earlier_steps_come_back_where_their_sort_is_missing(firm: Place) -> None:
    person = firm.company.entities["person"][0]
    fact = firm.company.facts["desk", person]
    settings = config("selfplay.max_solver_groups=4", "selfplay.pool_share=0.5")
    pool = QuestionPool()

    def desks(task: Task, member: int) -> Script:
        asked = Proposal(f"Where does {person} sit?", fact.value, (fact.mails[-1],)).script()
        return asked if task.role is Role.PROPOSER else guess()

    def budgets(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return true_proposal(firm, 4 * group_number(task) + member).script()
        return expert(firm, task) if member % 2 else guess()

    first, report = run(firm, settings, desks, pool=pool)
    assert {task.question for task in first.rollouts[1][0]} == {f"Where does {person} sit?"}
    assert report.metrics["pool/drawn"] == 0
    second, report = run(firm, settings, budgets, step=2, pool=pool)
    tasks = second.rollouts[1][0]
    older = [task for task in tasks if sort_of(task) == (1, "where does _ sit")]
    assert {task.group_id for task in older} == {"2/r0"}
    assert {task.parent for task in older} == {"1/0"}
    assert len(tasks) == 4 * 4
    assert report.metrics["pool/drawn"] == 1
    # Their Solvers are trained on; no Proposer is paid for them.
    assert {w.trajectory.group_id for w in second.updates[0] if w.trajectory.role is Role.SOLVER} >= {"2/r0"}
    # A step without the pool asks only its own.
    third, _ = run(firm, config("selfplay.max_solver_groups=4"), budgets, step=2, pool=pool)
    assert all(task.group_id.startswith("2/s") for task in third.rollouts[1][0])


def test_the_cap_draws_at_random_and_not_the_first(firm: Place) -> None:
    def act(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return true_proposal(firm, 4 * group_number(task) + member).script()
        return guess()

    first = {true_proposal(firm, number).question for number in range(3)}
    sent = [
        {task.question for task in run(firm, config("selfplay.max_solver_groups=3"), act, step=step)[0].rollouts[1][0]}
        for step in range(1, 4)
    ]
    assert any(questions != first for questions in sent)
    assert len({frozenset(questions) for questions in sent}) > 1


# --- rewards and advantages -------------------------------------------------------------------------------------------


def test_invalid_proposals_stay_in_their_group_with_pay_zero(firm: Place) -> None:
    engine, report = run(firm, config(), half_right(firm))
    for name, pay in rewards(report).items():
        # half of the Solvers are right, so a valid question pays all of flat_top
        assert pay == ([(1.0, False)] * 2 + [(0.0, False)] * 2 if "/p" in name else [(0.0, False), (1.0, False)] * 2)
    batch = engine.updates[0]
    assert len(batch) == 3 * 4 + 3 * 4
    bad = [each for each in batch if each.trajectory.role is Role.PROPOSER and each.trajectory.submission is None]
    assert len(bad) == 6
    assert all(each.advantage < 0 for each in bad)
    assert report.metrics["proposals/valid_rate"] == 0.5
    assert report.metrics["proposals/refusal/no_submission"] == 0.5
    assert report.metrics["reward/proposer/total"] == 0.5
    assert report.metrics["episode/proposer/submitted_rate"] == 0.5


def test_a_refused_question_never_reaches_a_solver(firm: Place) -> None:
    project = firm.company.entities["project"][0]
    fact = firm.company.facts["budget", project]
    other = firm.company.facts["owner", firm.company.entities["project"][1]]
    bad = [
        (Proposal(f"What is the budget of {project}?", fact.value, (fact.mails[0], other.mails[0])), "hop_count"),
        (Proposal(f"What is the budget of {project}?", fact.value, ("nope",)), "unknown_evidence"),
        (Proposal(f"What is the budget of {project}?", "$1", fact.mails[:1]), "answer_not_in_evidence"),
        (Proposal(f"Is the budget of {project} {fact.value}?", fact.value, fact.mails[:1]), "answer_in_question"),
    ]  # fmt: skip

    def act(task: Task, member: int) -> Script:
        assert task.role is Role.PROPOSER
        return bad[member][0].script()

    engine, report = run(firm, config(), act)
    assert engine.rollouts[1][0] == []
    for _, reason in bad:
        assert report.metrics[f"proposals/refusal/{reason}"] == 0.25
    assert report.metrics["proposals/valid_rate"] == 0.0
    assert report.metrics["update/skipped"] == 1.0


@pytest.mark.parametrize("normalise", ["true", "false"])
def test_advantages_of_a_group_sum_to_zero(firm: Place, normalise: str) -> None:
    settings = config(f"grpo.normalize_rewards={normalise}")

    def act(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return true_proposal(firm, group_number(task)).script() if member == 3 else mute()
        return expert(firm, task) if member <= group_number(task) else guess()

    engine, _ = run(firm, settings, act)
    groups = by_group(engine.updates[0])
    assert len(groups) == 6
    for members in groups.values():
        assert len(members) == 4
        assert sum(each.advantage for each in members) == pytest.approx(0.0, abs=1e-9)
        assert {each.advantage > 0 for each in members} == {True, False}
    lone = next(each for each in groups["1/s0"] if each.advantage > 0)
    # one of four: 1 - 1/4, over the std of (1, 0, 0, 0) with Bessel's correction, which is 1/2
    assert lone.advantage == pytest.approx(1.5 if normalise == "true" else 0.75, rel=1e-4)


def test_questions_all_or_none_solve_pay_nothing_and_are_not_trained_on(firm: Place) -> None:
    def act(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return true_proposal(firm, group_number(task)).script()
        return expert(firm, task) if group_number(task) == 0 else guess()

    engine, report = run(firm, config(), act)
    assert {pay for group in rewards(report).items() if "/p" in group[0] for pay in group[1]} == {(0.0, False)}
    assert engine.updates == []
    assert report.metrics["groups/solver/zero_variance"] == 3.0
    assert report.metrics["groups/proposer/zero_variance"] == 3.0
    assert report.metrics["groups/proposer/kept"] == 0.0


def test_nothing_to_learn_from_skips_the_update_and_still_reports(firm: Place) -> None:
    engine, report = run(firm, config(), lambda task, member: mute())
    assert engine.updates == []
    assert engine.syncs == 1
    assert report.metrics["update/skipped"] == 1.0
    assert engine.rollouts[1][0] == []
    assert len(report.samples) == 12
    assert {record["advantage"] for record in report.samples} == {None}
    assert "reward/solver/total" not in report.metrics
    assert report.metrics["selection/proposer/dropped_zero_variance"] == 12.0


class BrokenSearch:
    """Passes all on, but a search for the word FAULT finds the server gone."""

    def __init__(self, index: SearchIndex) -> None:
        self._index = index
        self.locator = index.locator

    def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult:
        if isinstance(query, KeywordQuery) and "FAULT" in query.keywords:
            raise IndexUnavailable("gone")
        return self._index.search(query, snippet_chars=snippet_chars)

    def read(self, document_id: str) -> Document | None:
        return self._index.read(document_id)

    def ids(self):  # type: ignore[no-untyped-def]
        return self._index.ids()

    def asynchronous(self) -> None:
        return None

    def stats(self) -> IndexStats:
        return self._index.stats()

    def close(self) -> None:
        return None


def fault() -> Script:
    yield render_call("search_keyword", {"keywords": ["FAULT"]})


def test_environment_faults_shift_no_baseline_and_are_not_trained_on(firm: Place) -> None:
    def act(task: Task, member: int) -> Script:
        if member == 0:
            return fault()
        if task.role is Role.PROPOSER:
            return true_proposal(firm, group_number(task)).script() if member == 1 else mute()
        return expert(firm, task) if member == 1 else guess()

    broken = cast("SearchIndex", BrokenSearch(firm.index))
    engine, report = run(firm, config(), act, index=broken)
    faults = [t for t in engine.played if t.stop_reason is StopReason.ENVIRONMENT_FAULT]
    assert len(faults) == 3 + 3
    batch = engine.updates[0]
    assert {t.uid for t in faults}.isdisjoint(each.trajectory.uid for each in batch)
    for members in by_group(batch).values():
        assert len(members) == 3
        assert sum(each.advantage for each in members) == pytest.approx(0.0, abs=1e-9)
        assert max(each.advantage for each in members) == pytest.approx(2 / 3)  # one of three, not of four
    for role in Role:
        assert report.metrics[f"selection/{role}/dropped_environment_fault"] == 3.0
    # A third of the Solvers that count are right, so the question's pay is that of p = 1/3.
    assert report.metrics["reward/proposer/total"] == pytest.approx(1 / 3)
    records = [record for record in report.samples if record["stop_reason"] == "environment_fault"]
    assert all(cast("dict[str, object]", record["reward"])["masked"] for record in records)
    assert len(records) == 6


def test_a_question_whose_solvers_all_faulted_says_nothing_of_its_proposer(firm: Place) -> None:
    def act(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return true_proposal(firm, group_number(task)).script() if member < 2 else mute()
        return fault()

    engine, report = run(firm, config(), act, index=cast("SearchIndex", BrokenSearch(firm.index)))
    assert engine.updates == []
    for name, pay in rewards(report).items():
        if "/p" in name:
            assert pay == [(0.0, True)] * 2 + [(0.0, False)] * 2
    assert report.metrics["groups/solver/all_masked"] == 3.0


def test_trajectories_seen_differently_by_sampler_and_trainer_are_dropped(firm: Place) -> None:
    def shift(trajectory: Trajectory) -> float:
        return 1.0 if trajectory.uid == "1/0" else 0.01

    settings = config("grpo.seq_logprob_error_threshold=2.0")
    engine, report = run(firm, settings, half_right(firm), shift=shift)
    assert "1/0" not in {each.trajectory.uid for each in engine.updates[0]}
    assert len(engine.updates[0]) == 23
    assert report.metrics["selection/proposer/dropped_logprob_error"] == 1.0
    assert report.metrics["mismatch/solver/gen_kl_error_k1"] == pytest.approx(-0.01)
    kept, _ = run(firm, config(), half_right(firm), shift=shift)
    assert len(kept.updates[0]) == 24


@pytest.mark.parametrize(("proposer", "solver"), [(1.0, 1.0), (3.0, 1.0), (0.5, 2.0)])
def test_each_role_weighs_what_it_is_given_whatever_its_tokens(firm: Place, proposer: float, solver: float) -> None:
    settings = config(f"selfplay.role_weights.proposer={proposer}", f"selfplay.role_weights.solver={solver}")
    engine, _ = run(firm, settings, half_right(firm))
    tokens: dict[Role, float] = defaultdict(float)
    weighted: dict[Role, float] = defaultdict(float)
    for each in engine.updates[0]:
        tokens[each.trajectory.role] += each.trajectory.sampled_tokens
        weighted[each.trajectory.role] += each.weight * each.trajectory.sampled_tokens
    assert tokens[Role.PROPOSER] != tokens[Role.SOLVER]
    total = sum(tokens.values())
    assert weighted[Role.PROPOSER] == pytest.approx(proposer * total)
    assert weighted[Role.SOLVER] == pytest.approx(solver * total)


def test_samples_are_all_rollouts_with_the_advantage_they_were_trained_with(firm: Place) -> None:
    engine, report = run(firm, config(), half_right(firm))
    assert [record["uid"] for record in report.samples] == [t.uid for t in engine.played]
    trained = {each.trajectory.uid: each.advantage for each in engine.updates[0]}
    assert {str(r["uid"]): r["advantage"] for r in report.samples if r["advantage"] is not None} == trained
    assert report.metrics["tokens/solver"] == sum(t.sampled_tokens for t in engine.played if t.role is Role.SOLVER)
    assert set(report.seconds) == {"propose", "solve", "reward", "logprobs", "update", "total"}


# --- repeatable -------------------------------------------------------------------------------------------------------


def test_seed_and_step_decide_the_whole_step(firm: Place) -> None:
    settings = config("selfplay.hops={1: 0.5, 2: 0.5}", "selfplay.tool_variants=4", "selfplay.max_solver_groups=2")
    one, first = run(firm, settings, half_right(firm), step=5)
    two, second = run(firm, settings, half_right(firm), step=5)
    assert one.rollouts == two.rollouts
    assert first.metrics == second.metrics
    assert first.samples == second.samples
    seeds = {sampling.seed for _, sampling in one.rollouts}
    assert len(seeds) == 2  # each phase draws its own
    for other, step in ((settings, 6), (config("grpo.seed=43"), 5)):
        engine, _ = run(firm, other, half_right(firm), step=step)
        assert [task.seed for task in engine.rollouts[0][0]] != [task.seed for task in one.rollouts[0][0]]
        assert seeds.isdisjoint(sampling.seed for _, sampling in engine.rollouts)


def test_the_shares_of_hops_are_kept() -> None:
    rng = random.Random(0)
    drawn = [draw_hops({1: 0.1, 2: 0.7, 3: 0.2}, rng) for _ in range(3000)]
    assert [round(drawn.count(h) / 3000, 1) for h in (1, 2, 3)] == [0.1, 0.7, 0.2]


def test_a_proposer_starts_from_a_mail_a_subject_or_a_person(firm: Place) -> None:
    mail = firm.company.documents()[0]
    assert seed_text(mail) == f"{mail.id} | {mail.subject}"
    assert seed_text(mail, "subject") == mail.subject
    assert seed_text(mail, "person") == mail.sender_name
    assert seed_text(replace(mail, sender_name=""), "person") == mail.sender
    engine, _ = run(firm, config("selfplay.seeds=person"), half_right(firm))
    assert {task.seed for task in engine.rollouts[0][0]} <= set(firm.company.entities["person"])


# --- the control ------------------------------------------------------------------------------------------------------


def test_fixed_mode_trains_the_solver_alone_on_true_questions(firm: Place) -> None:
    settings = config("selfplay.mode=fixed", "grpo.num_prompts_per_step=6", "selfplay.hops={1: 0.5, 2: 0.5}")

    def act(task: Task, member: int) -> Script:
        assert task.role is Role.SOLVER
        return guess(task.answer) if member % 2 else guess()

    engine, report = run(firm, settings, act)
    assert len(engine.rollouts) == 1
    tasks = engine.rollouts[0][0]
    assert [task.group_id for task in tasks] == [f"1/s{k}" for k in range(6) for _ in range(4)]
    for task in tasks:
        truth = firm.company.parse(task.question)
        assert truth is not None
        assert (task.answer, task.evidence, task.hops) == (truth.answer, truth.evidence, truth.hops)
    assert {task.hops for task in tasks} <= {1, 2}
    assert len(engine.updates[0]) == 24
    assert {each.weight for each in engine.updates[0]} == {1.0}
    assert report.metrics["reward/solver/total"] == 0.5
    assert not [name for name in report.metrics if name.startswith(("proposals/", "reward/proposer"))]


def test_fixed_mode_needs_known_answers(firm: Place) -> None:
    settings = config("selfplay.mode=fixed", "corpus.source=maildir:somewhere")
    engine = ScriptedEngine(firm, firm.episode(settings), lambda task, member: mute())
    unknown = Board(firm.index, tuple(firm.index.ids()))
    with pytest.raises(ValueError, match=r"corpus\.source is maildir:somewhere"):
        train_step(engine, unknown, JUDGE, settings, 1)


def test_a_corpus_without_known_facts_plays_without_truth_metrics(firm: Place) -> None:
    settings = config()
    engine = ScriptedEngine(firm, firm.episode(settings), half_right(firm))
    report = train_step(engine, Board(firm.index, tuple(firm.index.ids())), JUDGE, settings, 1)
    assert report.metrics["proposals/valid_rate"] == 0.5
    assert "proposals/true_rate" not in report.metrics


# --- what the facts say of proposals ----------------------------------------------------------------------------------


def test_true_rate_knows_right_questions_wrong_keys_and_wrong_hops(firm: Place) -> None:
    facts = firm.company.facts
    projects = firm.company.entities["project"]
    room, time = facts["room", projects[1]], facts["time", projects[1]]
    owner = facts["owner", projects[2]]
    desk = facts["desk", owner.value]
    made = [
        true_proposal(firm, 0),
        Proposal(f"Which room is the review of {projects[1]} in?", time.value, room.mails[:1]),  # wrong key
        Proposal(f"Which desk does the owner of {projects[2]} have?", desk.value, desk.mails[:1]),  # 2 hops for 1
        Proposal("Which number stands on the red door?", desk.value, desk.mails[:1]),  # nobody knows
    ]
    settings = config(
        "selfplay.proposer_prompts_per_step=4", "rewards.proposer.checks.grounded=false",
        "rewards.proposer.checks.bridge=false",
    )  # fmt: skip

    def act(task: Task, member: int) -> Script:
        return made[group_number(task)].script() if task.role is Role.PROPOSER else guess()

    _, report = run(firm, settings, act)
    assert report.metrics["proposals/valid_rate"] == 1.0
    assert report.metrics["proposals/true_rate"] == 0.5
    assert report.metrics["proposals/true_hops_rate"] == 0.25
    assert report.metrics["proposals/hops2_share"] == 0.25


def test_truth_is_asked_of_the_facts_alone(firm: Place) -> None:
    company = firm.company
    project = company.entities["project"][0]
    owner = company.facts["owner", project].value
    desk = company.facts["desk", owner].value
    assert truth_of(company, f"Who owns {project}?", owner, JUDGE) == Truth(True, 1)
    assert truth_of(company, f"Who owns {project}?", desk, JUDGE) == Truth(False, 1)
    assert truth_of(company, f"Which desk does the owner of {project} have?", desk, JUDGE) == Truth(True, 2)
    assert truth_of(company, f"Who cleans {project}?", owner, JUDGE) == Truth(False, 0)
    assert truth_metrics([]) == {}
    shares = truth_metrics([(2, Truth(True, 2)), (1, Truth(True, 2)), (1, Truth(True, 1)), (2, Truth(False, 2))])
    assert shares == {
        "proposals/true_rate": 0.75, "proposals/true_hops_rate": 0.5, "proposals/hops2_share": 0.5,
    }  # fmt: skip


def test_the_key_of_every_company_question_is_right_by_the_judge(firm: Place) -> None:
    for hops in (1, 2, 3):
        for question in firm.company.questions(hops, 10**9, at_most=True):
            assert truth_of(firm.company, question.question, question.answer, JUDGE) == Truth(True, hops)


# --- the benchmark ----------------------------------------------------------------------------------------------------


def test_the_quick_start_benchmark_has_its_hundreds_of_questions() -> None:
    settings = load_config(ROOT / "examples/configs/selfplay_quickstart.yaml")
    part = settings.evaluation
    questions = company_questions(settings, part.source, part.questions)
    assert len(questions) >= 400
    assert len({question.id for question in questions}) == len({q.question for q in questions}) == len(questions)
    assert len({question.entity for question in questions}) >= 100
    for hops, share in part.hops.items():
        assert sum(question.hops == hops for question in questions) == round(share * part.questions)
    assert {question.kind for question in questions if question.hops == 2} == {">".join(c) for c in chains(2)}
    assert company_questions(settings, part.source, part.questions) == questions
    with pytest.raises(ValueError, match="benchmark_path"):
        company_questions(settings, "maildir:somewhere", 10)
