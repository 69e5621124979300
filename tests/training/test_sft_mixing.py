from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory
from training.config_sft import SftConfig
from training.sft.mixing import dual_mix, mixed, next_batch, passes
from training.sft.samples import Sample, SetName


def sample(source: SetName, number: int, trained: int, language: str = "en", prompt: int = 3) -> Sample:
    uid = f"{source}/{language}/{number}"
    size = prompt + trained
    return Sample(
        Trajectory(
            uid=uid, task=Task(role=Role.SOLVER, group_id=uid), token_ids=(1,) * size,
            loss_mask=(0,) * prompt + (1,) * trained, logprobs=(0.0,) * size, stop_reason=StopReason.SUBMITTED,
            policy_version=0,
        ),
        source,
        language,
    )  # fmt: skip


def config(**changes: object) -> SftConfig:
    return SftConfig.model_validate(changes)


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=8),
    st.lists(st.integers(1, 400), min_size=1, max_size=8),
    st.floats(0.05, 0.95),
)
def test_token_shares_hold_at_every_moment(short: list[int], long: list[int], share: float) -> None:
    general = [sample("general", n, size) for n, size in enumerate(short)]
    agentic = [sample("agentic", n, size) for n, size in enumerate(long)]
    given_tokens: Counter[str] = Counter()
    for item in islice(dual_mix([*general, *agentic], config(general={"share": share})), 200):
        given_tokens[item.source] += item.trajectory.sampled_tokens
        total = sum(given_tokens.values())
        assert abs(given_tokens["general"] - share * total) <= max(*short, *long)


def test_a_pass_gives_each_sample_once_and_passes_differ() -> None:
    samples = [sample("general", n, 1) for n in range(20)]
    drawn = [item.trajectory.uid for item in islice(passes(samples, 1), 40)]
    assert sorted(drawn[:20]) == sorted(drawn[20:]) == sorted(item.trajectory.uid for item in samples)
    assert drawn[:20] != drawn[20:]
    assert drawn == [item.trajectory.uid for item in islice(passes(samples, 1), 40)]
    assert drawn != [item.trajectory.uid for item in islice(passes(samples, 2), 40)]


def test_languages_have_their_shares_of_their_own_set() -> None:
    agentic = [sample("agentic", n, 10, language) for n in range(5) for language in ("en", "ja", "de")]
    general = [sample("general", n, 10, "en") for n in range(5)]
    settings = config(general={"share": 0.5}, agentic={"languages": {"en": 0.25, "ja": 0.75}})
    drawn = Counter((item.source, item.language) for item in islice(dual_mix([*agentic, *general], settings), 400))
    assert drawn["general", "en"] == 200
    assert abs(drawn["agentic", "ja"] - 150) <= 1
    assert drawn["agentic", "de"] == 0


def test_no_share_draws_nothing_of_a_set_that_may_then_be_empty() -> None:
    drawn = islice(dual_mix([sample("agentic", 0, 5)], config(general={"share": 0.0})), 10)
    assert {item.source for item in drawn} == {"agentic"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (config(), "the general set has no samples"),
        (config(general={"share": 0.0}, agentic={"languages": {"ja": 1.0}}), "wants ja and the data has 'en'"),
    ],
)
def test_a_set_that_is_wanted_and_absent_is_named(settings: SftConfig, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        next(dual_mix([sample("agentic", 0, 5)], settings))


def test_a_batch_is_a_number_of_samples_or_of_tokens() -> None:
    def stream() -> list[Sample]:
        return [sample("agentic", n, 7) for n in range(20)]

    assert len(next_batch(iter(stream()), config(trajectories_per_step=4))) == 4
    by_tokens = next_batch(iter(stream()), config(tokens_per_step=35))
    assert sum(len(item.trajectory.token_ids) for item in by_tokens) == 40  # the fourth sample passes 35
    assert len(next_batch(iter(stream()), config(tokens_per_step=1))) == 1


def test_streams_are_left_alone_where_their_share_is_zero() -> None:
    assert list(islice(mixed({"a": iter([sample("general", 0, 1)])}, {"a": 1.0, "b": 0.0}), 1))


def test_shares_that_do_not_sum_to_one_are_refused() -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        config(general={"languages": {"en": 0.5}})
