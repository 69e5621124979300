"""What rollouts are drawn with is said and written; another distribution than the trained one is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_policy as tiny
from transformers import GenerationConfig

from training.config import Config
from training.engines.base import EffectiveSampling
from training.mismatch import mismatch_metrics
from training.preflight import FILE, differing, preflight, refusals, training_sampling
from training.runlog import RunLog

PLAIN = EffectiveSampling(temperature=1.0, training_temperature=1.0)
QWEN_FILE = {"temperature": 0.6, "top_k": 20, "top_p": 0.95}


class Reporting:
    """An engine of which only the report is asked."""

    def __init__(self, found: EffectiveSampling) -> None:
        self._found = found

    def effective_sampling(self, asked: Any) -> EffectiveSampling:
        return self._found


def check(found: EffectiveSampling, folder: Path, **generation: Any) -> None:
    config = Config.model_validate({"policy": {"generation": generation}})
    engine: Any = Reporting(found)
    with RunLog(folder, {}) as log:
        preflight(engine, config, log)


@pytest.mark.parametrize(
    ("name", "value"),
    [("top_p", 0.95), ("top_k", 20), ("min_p", 0.05), ("repetition_penalty", 1.1), ("presence_penalty", 1.0),
     ("frequency_penalty", -0.5)],
)  # fmt: skip
def test_every_filter_and_penalty_is_refused_by_name(name: str, value: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{name} is {value:g} and must be"):
        check(replace(PLAIN, **{name: value}), tmp_path)
    assert json.loads((tmp_path / FILE).read_text())[name] == value  # written all the same: it is the evidence


def test_a_field_that_the_model_file_fills_in_is_refused_with_its_origin(tmp_path: Path) -> None:
    """The config asks for nothing, and a server still takes the model's own top-k and temperature."""
    found = replace(PLAIN, **QWEN_FILE, model_file=QWEN_FILE, inherited=tuple(QWEN_FILE))
    with pytest.raises(ValueError, match="sampling preflight") as refusal:
        check(found, tmp_path)
    for part in ("top_k is 20 (from the model's generation_config.json", "top_p is 0.95", "at temperature 0.6 (from"):
        assert part in str(refusal.value)
    # The switch for experiments is for what the config asks for, never for what slips in.
    assert len(refusals(found, allow_filters=True)) == 3


def test_temperatures_of_rollouts_and_training_are_one(tmp_path: Path) -> None:
    check(replace(PLAIN, temperature=0.7, training_temperature=0.7), tmp_path)
    with pytest.raises(ValueError, match=r"temperature 0\.7 and log-probs are recomputed at 1"):
        check(replace(PLAIN, temperature=0.7), tmp_path)


@pytest.mark.parametrize("top_k", [None, -1, 0])
def test_each_way_to_write_no_top_k_passes(top_k: int | None, tmp_path: Path) -> None:
    check(replace(PLAIN, top_k=top_k, model_file={"top_k": 0}), tmp_path)
    assert differing(replace(PLAIN, top_k=top_k, model_file={"top_k": 0})) == {}


def test_allowed_filters_pass_with_a_warning_and_penalties_never(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"top_p": 0.9, "top_k": 5, "allow_filters": True}
    check(replace(PLAIN, top_p=0.9, top_k=5), tmp_path, **asked)
    assert "policy.generation.top_p 0.9 is on by allow_filters" in (tmp_path / "events.log").read_text()
    with pytest.raises(ValueError, match=r"repetition_penalty is 1\.2"):
        check(replace(PLAIN, top_p=0.9, repetition_penalty=1.2), tmp_path, **asked)


def test_the_local_engine_reports_the_models_file_and_ignores_it(tmp_path: Path) -> None:
    folder = tiny.write_model(tmp_path / "model")
    tiny.policy(tiny.config(folder)).model.save_pretrained(folder)
    GenerationConfig(do_sample=True, repetition_penalty=1.0, **QWEN_FILE).save_pretrained(folder)
    engine = tiny.engine(tiny.config(folder, init="pretrained"))
    asked = training_sampling(tiny.config(folder), 3)
    found = engine.effective_sampling(asked)
    assert found.model_file == QWEN_FILE | {"repetition_penalty": 1.0}
    assert differing(found) == QWEN_FILE  # a repetition penalty of 1 changes nothing
    assert refusals(found, allow_filters=False) == []
    # And it is true: the rollouts' log-probs are those of the whole distribution.
    played = engine.rollout(tiny.tasks(groups=2), asked)
    got = mismatch_metrics(played, engine.logprobs(played))
    assert got["mismatch/solver/token_mult_prob_error"] == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("asked", [{"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.2}])
def test_rollouts_behind_a_filter_do_not_match_training(asked: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny.write_model(tmp_path)
    settings = tiny.config(folder, generation={"max_new_tokens": 12, "allow_filters": True, **asked})
    engine = tiny.engine(settings)
    played = engine.rollout(tiny.tasks(groups=3), training_sampling(settings, 1))
    recomputed = engine.logprobs(played)
    got = mismatch_metrics(played, recomputed)
    assert got["mismatch/solver/token_mult_prob_error"] > 1.05
    assert got["mismatch/solver/gen_kl_error"] > 5e-3
    # What a filter leaves is renormalised, so the sampler's probability is never below the trainer's.
    for trajectory, row in zip(played, recomputed, strict=True):
        for mask, recorded, value in zip(trajectory.loss_mask, trajectory.logprobs, row, strict=True):
            assert not mask or recorded >= value - 1e-4
