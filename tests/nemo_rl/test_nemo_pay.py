"""An environment that pays by itself, for NeMo-RL's own loops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import nemo_rl_play as play
import pytest
import ray
from nemo_rl_play import Company
from shaky_actor import OUTAGE, ShakyActor

from environments.protocol import render_call
from environments.task import Role, Task
from rewards.episode_pay import SolverEpisodePay

TASK = Task(role=Role.SOLVER, group_id="g", question="Who leads it?", answer="Ann Lee", evidence=("0417",))


@pytest.fixture(scope="module")
def firm(tmp_path_factory: pytest.TempPathFactory) -> Company:
    return play.company(tmp_path_factory.mktemp("firm"))


@pytest.fixture(scope="module")
def payer(firm: Company, cluster: None) -> Any:
    pay = {"solver": {"wrong": -0.5, "right": 2.0}}
    section = firm.section | {"score": "rewards.episode_pay:SolverEpisodePay", "score_settings": pay}
    return ShakyActor.remote(section)


@pytest.mark.parametrize("kind", list(play.ROLLOUTS))
def test_built_questions_are_paid_where_they_end(firm: Company, payer: Any, kind: str) -> None:
    answers = {"right": "Ann Lee", "wrong": "Bob Ray", "none": ""}

    def speak(texts: list[str], nth: int) -> str:
        if len(texts) == 1:
            return render_call("search_keyword", {"keywords": ["lead"]})
        answer = answers[texts[0].split()[-1]]
        return render_call("submit", {"answer": answer, "evidence": ["0417"]}) if answer else "nothing to say"

    tasks = [replace(TASK, question=f"Who leads it? {name}") for name in answers]
    batch = play.batch_of(firm, tasks, episode_ids=None, task_name="questions")
    done = play.roll(kind, firm, batch, speak, {"questions": payer})
    assert done["total_reward"].tolist() == [2.0, -0.5, 0.0]


def test_a_fault_stops_a_loop_that_could_not_mask_it(firm: Company, payer: Any) -> None:
    away = render_call("search_keyword", {"keywords": [OUTAGE]})
    with pytest.raises(Exception, match="must not be trained on \\(index unavailable"):
        play.roll("sync", firm, play.batch_of(firm, [TASK]), lambda *_: away, {"solver": payer})
    ray.get(payer.pop_results.remote(play.episode_ids([TASK])))


def test_silence_that_pays_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rewards\.solver\.none is 0\.1"):
        SolverEpisodePay(solver={"none": 0.1})
