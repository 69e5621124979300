"""What is ours of the cluster engine, without NeMo-RL: rows, padding, the workers' metrics, exports, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory
from training.config import LossConfig
from training.engines.base import Weighted
from training.engines.batching import optimiser_steps
from training.engines.nemo_rl.batch import RowShape, fill_up, rows_of, token_columns, update_columns
from training.engines.nemo_rl.export import converter_command, lay_out
from training.engines.nemo_rl.metrics import update_metrics
from training.engines.nemo_rl.pieces import Pieces, asynchronous
from training.engines.nemo_rl.rollout import rollout_ids


def trajectory(name: str, prompt: int, sampled: int, role: Role = Role.SOLVER) -> Trajectory:
    length = prompt + sampled
    return Trajectory(
        uid=name,
        task=Task(role=role, group_id=name),
        token_ids=tuple(range(10, 10 + length)),
        loss_mask=(0,) * prompt + (1,) * sampled,
        logprobs=(0.0,) * prompt + tuple(-0.1 * (k + 1) for k in range(sampled)),
        stop_reason=StopReason.SUBMITTED,
        policy_version=0,
    )


THREE = [trajectory("a", 3, 2), trajectory("b", 2, 5, Role.PROPOSER), trajectory("c", 1, 2)]


@pytest.mark.parametrize(
    ("count", "global_batch", "multiple"), [(3, None, 4), (7, 3, 2), (8, 4, 4), (5, 2, 6), (1, 9, 1)]
)
def test_every_step_has_its_members_and_a_size_that_workers_can_share(
    count: int, global_batch: int | None, multiple: int
) -> None:
    steps = optimiser_steps(count, global_batch, [1, 2])
    lengths = [10 + index for index in range(count)]
    rows = fill_up(steps, lengths, multiple)
    assert rows.global_batch % multiple == 0
    assert len(rows.order) == len(rows.filled) == rows.global_batch * len(steps)
    assert rows.fillers == len(rows.order) - count
    for number, step in enumerate(steps):
        part = slice(number * rows.global_batch, (number + 1) * rows.global_batch)
        assert [i for i, filler in zip(rows.order[part], rows.filled[part], strict=True) if not filler] == step
        assert rows.global_batch - len(step) < multiple + max(map(len, steps)) - min(map(len, steps)) + 1
    assert {i for i, filler in zip(rows.order, rows.filled, strict=True) if filler} <= {0}  # the shortest


def test_steps_depend_on_the_seed_alone_and_take_everyone_once() -> None:
    steps = optimiser_steps(11, 4, [42, 7])
    assert steps == optimiser_steps(11, 4, [42, 7])
    assert steps != optimiser_steps(11, 4, [42, 8])
    assert sorted(index for step in steps for index in step) == list(range(11))
    assert sorted(map(len, steps)) == [3, 4, 4]


def test_columns_hold_the_tokens_where_they_were() -> None:
    rows = fill_up([[0, 1, 2]], [5, 7, 3], 4)
    columns = token_columns(THREE, rows, RowShape(shards=2, micro_batch=2, divisible_by=4, pad_id=99))
    assert columns["input_ids"].shape == (4, 8)
    assert columns["input_ids"][0].tolist() == [10, 11, 12, 13, 14, 99, 99, 99]
    assert columns["input_lengths"].tolist() == [5, 7, 3, 3]
    assert columns["sample_mask"].tolist() == [1, 1, 1, 0]
    assert columns["token_mask"].sum(dim=1).tolist() == [2, 5, 2, 2]
    assert columns["generation_logprobs"][0].tolist() == pytest.approx([0, 0, 0, -0.1, -0.2, 0, 0, 0])
    assert int((columns["token_mask"] * columns["sample_mask"][:, None]).sum()) == sum(t.sampled_tokens for t in THREE)


def test_advantages_weights_and_roles_follow_their_rows() -> None:
    batch = [Weighted(t, a, w) for t, a, w in zip(THREE, (0.5, -2.0, 1.0), (1.0, 3.0, 1.0), strict=True)]
    rows = fill_up([[2, 0], [1]], [5, 7, 3], 2)
    columns = update_columns(batch, rows, width=8)
    assert columns["advantages"][:, 0].tolist() == [1.0, 0.5, -2.0, 1.0]
    assert torch.equal(columns["advantages"], columns["advantages"][:, :1].expand(-1, 8))
    assert columns["loss_weight"].tolist() == [1, 1, 3, 1]
    assert columns["role_id"].tolist() == [1, 1, 0, 1]


def test_values_come_back_to_their_trajectories() -> None:
    rows = fill_up([[2, 0], [1]], [5, 7, 3], 2)
    values = torch.arange(4 * 8, dtype=torch.float).reshape(4, 8)
    found = rows_of(values, THREE, rows)
    assert found[2] == [0, 1, 2]  # the first row; the prompt's token is 0 anyway
    assert found[0] == [0, 0, 0, 11, 12]
    assert found[1] == [0, 0, 18, 19, 20, 21, 22]


def test_metrics_are_means_over_steps_and_over_each_roles_tokens() -> None:
    """Two optimiser steps of two micro-batches: 30 of the first's 40 tokens are the Solver's, 10 of the second's 40."""
    lists = {
        "loss": [0.25, 0.25, 1.0, 0.5],
        "gen_kl_error": [0.1, 0.3, 0.2, 0.2],
        "lr": [1.0, 3.0],
        "probs_ratio_max": [1.5, float("-inf"), 1.25, 1.0],
        "solver/gen_kl_error": [0.1 * 30 / 40, 0.0, 0.3 * 10 / 40, 0.0],
        "solver/token_share": [30 / 40, 0.0, 10 / 40, 0.0],
        "proposer/gen_kl_error": [0.0, 0.5 * 10 / 40, 0.0, 0.5 * 30 / 40],
        "proposer/token_share": [0.0, 10 / 40, 0.0, 30 / 40],
        "sampling_importance_ratio": [1.0, 1.0, 1.0, 1.0],
    }
    results = {"all_mb_metrics": lists, "grad_norm": torch.tensor([0.7]), "loss": torch.tensor([0.5, 1.5])}
    metrics = update_metrics(results, 2, LossConfig())
    assert metrics["loss"] == pytest.approx(1.0)
    assert metrics["gen_kl_error"] == pytest.approx(0.4)
    assert metrics["lr"] == 2.0
    assert metrics["probs_ratio_max"] == 1.5
    assert metrics["solver/gen_kl_error"] == pytest.approx((0.1 * 30 + 0.3 * 10) / 40)
    assert metrics["proposer/gen_kl_error"] == pytest.approx(0.5)
    assert metrics["solver/token_share"] == pytest.approx(0.5)
    assert metrics["grad_norm"] == pytest.approx(0.7)
    gspo = LossConfig(sequence_level_importance_ratios=True, token_level_loss=False)
    assert "sampling_importance_ratio" not in update_metrics(results, 2, gspo)


def test_ids_are_those_of_the_local_engine() -> None:
    tasks = [Task(role=Role.SOLVER, group_id=group) for group in ("x", "y", "x", "x")]
    assert rollout_ids(tasks) == ["x/0", "y/0", "x/1", "x/2"]


def test_the_layout_is_read_from_nemo_rls_own_settings() -> None:
    class Policy:
        data_parallel_size = 4

    def shape(**policy: Any) -> RowShape:
        settings = {
            "train_micro_batch_size": 4, "logprob_batch_size": 6, "make_sequence_length_divisible_by": 8,
            "dynamic_batching": {"enabled": False}, "sequence_packing": {"enabled": False},
            "generation": {"_pad_token_id": 7},
        } | policy  # fmt: skip
        return Pieces(Policy(), None, {"policy": settings}).row_shape  # pyright: ignore

    assert shape() == RowShape(shards=4, micro_batch=12, divisible_by=8, pad_id=7)
    assert shape().rows == 48
    assert shape(sequence_packing={"enabled": True}).rows == 4
    assert shape(dynamic_batching={"enabled": True}).rows == 4


@pytest.mark.parametrize(
    ("generation", "wanted"),
    [
        ({"backend": "vllm", "vllm_cfg": {"async_engine": True}}, True),
        ({"backend": "vllm", "vllm_cfg": {"async_engine": False}}, False),
        ({"backend": "megatron", "mcore_generation_config": {"async_engine": True}}, True),
        ({"backend": "sglang", "use_async_rollouts": True}, True),
        ({"backend": "sglang", "vllm_cfg": {"async_engine": True}}, False),
    ],
)
def test_rows_are_taken_one_by_one_where_nemo_rl_would(generation: dict[str, Any], wanted: bool) -> None:
    assert asynchronous(generation) is wanted


def test_consolidated_weights_become_the_folder_itself(tmp_path: Path) -> None:
    consolidated = tmp_path / "weights" / "model" / "consolidated"
    consolidated.mkdir(parents=True)
    (consolidated / "config.json").write_text("{}")
    (consolidated.parent / "shard-0.safetensors").write_text("x")
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_text("{}")
    assert lay_out(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()
    assert not consolidated.exists()
    assert (consolidated.parent / "shard-0.safetensors").is_file()  # what workers resume from


def test_a_checkpoint_that_must_be_converted_names_its_script(tmp_path: Path) -> None:
    assert not lay_out(tmp_path)
    weights = tmp_path / "weights"
    weights.mkdir()
    with pytest.raises(FileNotFoundError, match="save_consolidated"):
        converter_command(tmp_path, Path("c.yaml"), Path("out"), Path("nemo"))
    (weights / ".metadata").touch()
    assert "nemo/examples/converters/convert_dcp_to_hf.py" in converter_command(
        tmp_path, Path("c.yaml"), Path("out"), Path("nemo")
    )
    (weights / "iter_0000000").mkdir()
    command = converter_command(tmp_path, Path("c.yaml"), Path("out"), Path("nemo"))
    assert command[command.index("--megatron-ckpt-path") + 1] == str(weights / "iter_0000000")
    assert command[:4] == ["uv", "run", "--extra", "mcore"]
