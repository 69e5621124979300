"""Our actors in NeMo-RL's multi-turn rollouts, synchronous and asynchronous, with scripted turns over a small company.

What comes back is compared, whole, with the same turns played in this process by the episode alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import nemo_rl_play as play
import pytest
import ray
import torch
from nemo_rl.environments.utils import create_env
from nemo_rl_play import Company, Turn, logprob_of
from shaky_actor import COMPANY, OUTAGE, TOGETHER, ShakyActor

from environments import nemo_rl
from environments.nemo_rl_rows import LogMismatch, RolloutLimits, group_numbers, make_rows, mask_faults, read_back
from environments.protocol import render_call
from environments.recorder import Recorder
from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory

both_rollouts = pytest.mark.parametrize("kind", list(play.ROLLOUTS))
SEARCH = render_call("search_keyword", {"keywords": ["budget"]})
VERSION = 7
LIMITS = RolloutLimits(max_seq_len=4096, max_rollout_turns=16)


def submit(answer: str, **more: str) -> str:
    return render_call("submit", {**more, "answer": answer, "evidence": ["0000"]})


def solver(group: str, question: str = "what is it?", answer: str = "x") -> Task:
    return Task(role=Role.SOLVER, group_id=group, question=question, answer=answer, evidence=("0000",))


def proposer(group: str, seed: str) -> Task:
    return Task(role=Role.PROPOSER, group_id=group, seed=seed)


@pytest.fixture(scope="module")
def firm(tmp_path_factory: pytest.TempPathFactory) -> Company:
    return play.company(tmp_path_factory.mktemp("firm"), "env.limits.max_turns=5", "grpo.max_rollout_turns=5")


@pytest.fixture(scope="module")
def actor(firm: Company, cluster: None) -> Any:
    nemo_rl.register()
    return create_env("futari_solver", firm.section)


@pytest.fixture(scope="module")
def shaky(firm: Company, cluster: None) -> Any:
    return ShakyActor.remote(firm.section)


def envs_of(actor: Any) -> dict[str, Any]:
    return {"proposer": actor, "solver": actor}


def finish(firm: Company, done: Any, *actors: Any, limits: RolloutLimits = LIMITS) -> list[Trajectory]:
    names = [info["episode_id"] for info in done["extra_env_info"]]
    states: dict[str, Any] = {}
    for actor in actors:
        states |= ray.get(actor.pop_results.remote(names))
    return read_back(done, states, episode=firm.episode, chat=firm.chat, limits=limits, policy_version=VERSION)


def played(
    firm: Company, task: Task, uid: str, turns: Sequence[str | Turn], ended_by: StopReason | None = None
) -> Trajectory:
    """The turns in this process, without NeMo-RL, rows or glue. ``ended_by`` None: the episode's own reason."""
    chat, episode = firm.chat, firm.episode
    state, messages = episode.start(task)
    recorder = Recorder(chat.prompt_ids(messages))
    for number, said in enumerate(turns):
        turn = said if isinstance(said, Turn) else Turn(said)
        ids = chat.turn_ids(turn.text)[: None if turn.ended else -1]
        recorder.sampled(ids, [torch.tensor(logprob_of(token)).item() for token in ids])
        observation, state = episode.step(state, turn.text)
        messages.append({"role": "assistant", "content": turn.text})
        if number < len(turns) - 1:
            recorder.observed(chat.observation_ids(observation.text, ended=turn.ended))
            messages.append({"role": "tool", "content": observation.text})
    return recorder.trajectory(uid=uid, state=state, policy_version=VERSION, messages=messages, stop_reason=ended_by)


def say_both_roles(texts: list[str], nth: int) -> str:
    """A Proposer reads a mail that its search showed, a Solver submits after one search."""
    if len(texts) == 1:
        return SEARCH
    if "Proposer" not in texts[0]:
        return submit(texts[0][-1])
    if len(texts) == 3:
        return render_call("read_mail", {"id": texts[2].split("\n")[2][:4]})
    return submit("yes", question=f"Who wrote of {texts[0][-1]}?")


@both_rollouts
@pytest.mark.parametrize("count", [1, 12])
def test_both_roles_in_one_batch_are_the_episodes_played_alone(
    firm: Company, actor: Any, kind: str, count: int
) -> None:
    tasks = [proposer(f"p{n}", f"seed {n}") if n % 3 == 0 else solver(f"s{n}", f"question {n}") for n in range(count)]
    done = play.roll(kind, firm, play.batch_of(firm, tasks), say_both_roles, envs_of(actor))
    made = finish(firm, done, actor)
    assert {len(each.turn_starts) for each in made} <= {2, 3}
    for trajectory, task, uid in zip(made, tasks, play.episode_ids(tasks), strict=True):
        texts = [message["content"] for message in trajectory.messages if message["role"] == "assistant"]
        assert trajectory == played(firm, task, uid, texts)
        assert trajectory.submission is not None
        assert bool(trajectory.submission.question) == (task.role is Role.PROPOSER)
    assert done["total_reward"].tolist() == [0.0] * count
    assert mask_faults(done, made) == 0
    assert done["loss_multiplier"].tolist() == [1.0] * count


@both_rollouts
def test_groups_with_one_prompt_stay_two(firm: Company, actor: Any, kind: str) -> None:
    tasks = [solver(group) for group in ("a", "a", "b", "b")]
    batch = play.batch_of(firm, tasks)
    prompts = [log[0]["token_ids"].tolist() for log in batch["message_log"]]
    assert prompts.count(prompts[0]) == 4
    done = play.roll(kind, firm, batch, lambda _, nth: submit(f"answer {nth}"), envs_of(actor))
    assert group_numbers(done).tolist() == [[0], [0], [1], [1]]
    made = finish(firm, done, actor)
    assert [trajectory.group_id for trajectory in made] == ["a", "a", "b", "b"]
    answers = [trajectory.submission.answer for trajectory in made if trajectory.submission]
    assert sorted(answers) == [f"answer {n}" for n in range(4)]
    for trajectory, uid in zip(made, play.episode_ids(tasks), strict=True):
        assert trajectory == played(firm, trajectory.task, uid, [trajectory.messages[-1]["content"]])


@both_rollouts
def test_a_context_that_is_full_in_mid_turn_ends_the_episode(firm: Company, actor: Any, kind: str) -> None:
    tasks = [solver("g")]
    whole = played(firm, tasks[0], "g#0", [SEARCH, submit("x")])
    # The last token of the submission finds no room: all of the text stands there, and the turn is not one.
    for missing in (1, 20):
        longest = len(whole.token_ids) - missing
        limits = replace(LIMITS, max_seq_len=longest)
        done = play.roll(
            kind, firm, play.batch_of(firm, tasks), lambda texts, _: SEARCH if len(texts) == 1 else submit("x"),
            envs_of(actor), max_seq_len=longest,
        )  # fmt: skip
        (made,) = finish(firm, done, actor, limits=limits)
        assert made.token_ids == whole.token_ids[:longest]
        assert made.loss_mask == whole.loss_mask[:longest]
        assert (made.stop_reason, made.submission) == (StopReason.MAX_TOKENS, None)


@both_rollouts
def test_a_result_without_room_is_left_out(firm: Company, actor: Any, kind: str) -> None:
    tasks = [solver("g")]
    expected = played(firm, tasks[0], "g#0", [SEARCH], StopReason.MAX_TOKENS)
    longest = len(expected.token_ids) + 20
    done = play.roll(kind, firm, play.batch_of(firm, tasks), lambda *_: SEARCH, envs_of(actor), max_seq_len=longest)
    assert sum(len(message["token_ids"]) for message in done["message_log"][0]) == longest
    assert finish(firm, done, actor, limits=replace(LIMITS, max_seq_len=longest)) == [expected]


@pytest.mark.parametrize(("kind", "tells_cuts"), [("sync", True), ("sync", False), ("async", False)])
def test_a_turn_cut_by_its_own_length_is_closed_for_it(firm: Company, actor: Any, kind: str, tells_cuts: bool) -> None:
    turns = [Turn("I think and think", ended=False), Turn(SEARCH, ended=False), Turn(submit("x"))]
    done = play.roll(
        kind, firm, play.batch_of(firm, [solver("g")]), lambda texts, _: turns[len(texts) // 2], envs_of(actor),
        tells_cuts=tells_cuts,
    )  # fmt: skip
    (made,) = finish(firm, done, actor)
    assert made == played(firm, solver("g"), "g#0", turns)


def test_an_asynchronous_rollout_that_is_told_of_a_cut_ends_there(firm: Company, actor: Any) -> None:
    cut = Turn(SEARCH, ended=False)
    done = play.roll("async", firm, play.batch_of(firm, [solver("g")]), lambda *_: cut, envs_of(actor))
    assert finish(firm, done, actor) == [played(firm, solver("g"), "g#0", [cut], StopReason.MAX_TOKENS)]


@both_rollouts
def test_a_broken_call_is_answered_and_can_be_mended(firm: Company, actor: Any, kind: str) -> None:
    turns = ["no call", render_call("search_keyword", {"keyword": "budget"}), SEARCH, submit("x")]
    done = play.roll(
        kind, firm, play.batch_of(firm, [solver("g")]), lambda texts, _: turns[len(texts) // 2], envs_of(actor)
    )
    (made,) = finish(firm, done, actor)
    assert made == played(firm, solver("g"), "g#0", turns)
    assert made.messages[3]["content"].startswith("error: no tool call")
    assert "did you mean keywords" in made.messages[5]["content"]


@both_rollouts
@pytest.mark.parametrize(
    ("said", "turns", "reason"), [("no call", 3, StopReason.TOO_MANY_ERRORS), (SEARCH, 5, StopReason.MAX_TURNS)]
)
def test_the_episode_s_own_limits_end_a_row(
    firm: Company, actor: Any, kind: str, said: str, turns: int, reason: StopReason
) -> None:
    done = play.roll(kind, firm, play.batch_of(firm, [solver("g")]), lambda *_: said, envs_of(actor))
    (made,) = finish(firm, done, actor)
    assert made == played(firm, solver("g"), "g#0", [said] * turns)
    assert made.stop_reason is reason


@both_rollouts
def test_the_rollout_s_limit_of_turns_ends_a_row(firm: Company, actor: Any, kind: str) -> None:
    done = play.roll(
        kind, firm, play.batch_of(firm, [solver("g")]), lambda *_: SEARCH, envs_of(actor), max_rollout_turns=2
    )
    expected = played(firm, solver("g"), "g#0", [SEARCH] * 2, StopReason.MAX_TURNS)
    assert finish(firm, done, actor, limits=replace(LIMITS, max_rollout_turns=2)) == [expected]


@both_rollouts
def test_an_index_that_is_away_masks_its_rows_and_no_other(firm: Company, shaky: Any, kind: str) -> None:
    tasks = [solver("away", f"is there an {OUTAGE}?"), solver("there")]

    def speak(texts: list[str], nth: int) -> str:
        if OUTAGE not in texts[0]:
            return submit("x")
        return SEARCH if len(texts) == 1 else render_call("search_keyword", {"keywords": [OUTAGE]})

    done = play.roll(kind, firm, play.batch_of(firm, tasks), speak, envs_of(shaky))
    made = finish(firm, done, shaky)
    assert [each.stop_reason for each in made] == [StopReason.ENVIRONMENT_FAULT, StopReason.SUBMITTED]
    assert [event.error for event in made[0].events] == ["", "index unavailable: the index is away"]
    assert mask_faults(done, made) == 1
    assert done["loss_multiplier"].tolist() == [0.0, 1.0]
    assert done["total_reward"].tolist() == [0.0, 0.0]


@both_rollouts
def test_steps_of_one_actor_run_side_by_side(firm: Company, shaky: Any, kind: str) -> None:
    """Each search waits for the others: one after the other they would never end."""
    wait = render_call("search_keyword", {"keywords": [TOGETHER]})
    tasks = [solver(f"g{number}") for number in range(COMPANY)]
    done = play.roll(
        kind, firm, play.batch_of(firm, tasks), lambda texts, _: wait if len(texts) == 1 else submit("x"),
        envs_of(shaky),
    )  # fmt: skip
    assert [each.stop_reason for each in finish(firm, done, shaky)] == [StopReason.SUBMITTED] * COMPANY


@both_rollouts
def test_rows_of_several_actors_meet_in_one_batch(firm: Company, actor: Any, shaky: Any, kind: str) -> None:
    tasks = [proposer("p", "seed 1"), solver("s", "question 2")] * 3
    done = play.roll(kind, firm, play.batch_of(firm, tasks), say_both_roles, {"proposer": actor, "solver": shaky})
    made = finish(firm, done, actor, shaky)
    assert [len(each.turn_starts) for each in made] == [3, 2] * 3
    assert all(each.stop_reason is StopReason.SUBMITTED for each in made)


def test_any_actor_can_take_any_turn(firm: Company, actor: Any, shaky: Any) -> None:
    """What is known of an episode travels with its row, so a pool needs no routing."""
    (row,) = make_rows([solver("g")], firm.episode, firm.chat, episode_ids=["g#0"])
    log = [{"role": "user", "content": "..."}, {"role": "assistant", "content": SEARCH}]
    first = ray.get(actor.step.remote([log], [row["extra_env_info"]]))
    log += [*first.observations, {"role": "assistant", "content": submit("x")}]
    ray.get(shaky.step.remote([log], first.metadata))
    states = [ray.get(each.pop_results.remote(["g#0"]))["g#0"] for each in (actor, shaky)]
    assert [state.turn for state in states] == [1, 2]
    assert states[1].submission is not None
    assert [event.name for event in states[1].events] == ["search_keyword", "submit"]


def test_a_failed_generation_is_a_fault_of_the_machinery(firm: Company, actor: Any) -> None:
    """NeMo-RL's asynchronous rollout prints the error and hands the row back as if it had been paid 0."""

    def speak(texts: list[str], nth: int) -> str:
        if "one" in texts[0] or len(texts) == 3:
            raise ConnectionError("the engine died")
        return SEARCH

    tasks = [solver("g1", "is it one?"), solver("g2", "is it two?")]
    done = play.roll("async", firm, play.batch_of(firm, tasks), speak, envs_of(actor))
    made = finish(firm, done, actor)
    assert [each.stop_reason for each in made] == [StopReason.ENVIRONMENT_FAULT] * 2
    assert [len(each.turn_starts) for each in made] == [0, 1]
    assert mask_faults(done, made) == 2


@both_rollouts
def test_what_no_actor_remembers_is_played_again_from_the_log(firm: Company, actor: Any, kind: str) -> None:
    tasks = [proposer("p", "seed 1"), solver("s", "question 2")]
    done = play.roll(kind, firm, play.batch_of(firm, tasks), say_both_roles, envs_of(actor))
    kept = finish(firm, done, actor)
    assert finish(firm, done, actor) == kept  # the second time there was nothing to pop
    assert finish(firm, done) == kept


@both_rollouts
def test_a_plain_tokenizer_gives_the_same_episodes(firm: Company, actor: Any, kind: str) -> None:
    tasks = [proposer("p", "seed 1"), solver("s", "question 2")]
    tokenizers = (firm.chat.tokenizer, None)
    plain, ours = (
        finish(
            firm,
            play.roll(kind, firm, play.batch_of(firm, tasks), say_both_roles, envs_of(actor), tokenizer=tokenizer),
            actor,
        )
        for tokenizer in tokenizers
    )
    assert plain == ours


def damaged(done: Any) -> dict[str, Any]:
    """Name to a change of the first row's log: prompt, turn, result, turn."""

    def swap(place: int, key: str, change: Any) -> None:
        message = done["message_log"][0][place]
        message[key] = change(message[key])

    return {
        "a token of another turn": lambda: swap(1, "token_ids", lambda ids: torch.cat([ids[:-1], ids[:1]])),
        "a dropped token": lambda: swap(3, "token_ids", lambda ids: ids[1:]),
        "a shifted turn": lambda: swap(1, "token_ids", lambda ids: ids.roll(1)),
        "a dropped log-prob": lambda: swap(1, "generation_logprobs", lambda values: values[1:]),
        "a log-prob that is no number": lambda: swap(1, "generation_logprobs", lambda values: values / 0 * 0),
        "a wrong result": lambda: swap(2, "token_ids", lambda ids: ids + 1),
        "a cut result": lambda: swap(2, "token_ids", lambda ids: ids[:-1]),
        "another prompt": lambda: swap(0, "token_ids", lambda ids: ids[1:]),
        "a lost turn": lambda: done["message_log"][0].__delitem__(slice(3, 5)),
    }


@pytest.mark.parametrize("damage", list(damaged(None)))
def test_wrong_tokens_are_seen(firm: Company, actor: Any, damage: str) -> None:
    done = play.roll("sync", firm, play.batch_of(firm, [solver("g")]), say_both_roles, envs_of(actor))
    damaged(done)[damage]()
    with pytest.raises(LogMismatch, match="g#0"):
        finish(firm, done, actor)


def test_two_rows_of_one_id_are_refused(firm: Company, actor: Any) -> None:
    with pytest.raises(ValueError, match="2 episode ids of which 1 differ"):
        play.batch_of(firm, [solver("g")] * 2, episode_ids=["g", "g"])
    copied = play.batch_of(firm, [solver("g")], episode_ids=["twice"]).repeat_interleave(2)
    with pytest.raises(Exception, match="give ids to rows after they are repeated"):
        play.roll("sync", firm, copied, say_both_roles, envs_of(actor))
    ray.get(actor.pop_results.remote(["twice"]))


def test_rows_without_an_id_are_stepped_and_forgotten(firm: Company, actor: Any) -> None:
    batch = play.batch_of(firm, [solver("g", "question 5")], episode_ids=None).repeat_interleave(3)
    done = play.roll("sync", firm, batch, say_both_roles, envs_of(actor))
    assert [[message["role"] for message in log] for log in done["message_log"]] == [
        ["user", "assistant", "tool", "assistant", "tool"]
    ] * 3
    assert ray.get(actor.pop_results.remote([""])) == {}


def test_a_mistake_in_an_actor_s_section_is_named(firm: Company, cluster: None) -> None:
    with pytest.raises(ValueError, match="indexes"):
        nemo_rl.SearchEnvironment({**firm.section, "indexes": "x"})


def test_every_name_is_registered_once(firm: Company) -> None:
    from nemo_rl.environments.utils import ENV_REGISTRY

    nemo_rl.register()
    nemo_rl.register()
    assert {ENV_REGISTRY[name]["actor_class_fqn"] for name in nemo_rl.ENV_NAMES} == {"environments.nemo_rl.SearchActor"}
