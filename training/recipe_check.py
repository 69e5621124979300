"""What a recipe comes to, as far as it can be told without a GPU; ``examples/check_recipe.py`` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf

from training.batch_plan import BatchPlan, batch_plan
from training.config import Config
from training.config_load import ConfigError
from training.engines.base import EffectiveSampling
from training.engines.nemo_rl.checkout import VERSION, checkout, version
from training.engines.nemo_rl.config import nemo_rl_master_config
from training.engines.nemo_rl.layout import Layout, layout, tokens_per_microbatch
from training.engines.nemo_rl.limits import advice, refusals
from training.engines.nemo_rl.memory import (
    GenerationMemory,
    TrainingMemory,
    generation_memory,
    logprob_memory,
    reference_memory,
    training_memory,
)
from training.engines.nemo_rl.schema import NotImportable, schema_errors
from training.engines.nemo_rl.sft_config import nemo_rl_sft_config
from training.model_shape import KNOWN, ModelShape, shape_of
from training.preflight import training_sampling

_ROOM = 0.9
"""Share of a GPU that an estimate may fill: the rest is fragmentation and the libraries' own."""


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes on one GPU of ``gpu`` bytes. ``reference``: host memory of all processes together, 0 without a reference;
    ``generation`` None: nothing is generated."""

    gpu: int
    parameters: int
    training: TrainingMemory
    logprobs: int
    reference: int
    generation: GenerationMemory | None


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """``master`` is the config that NeMo-RL takes; ``microbatch`` the padded tokens of a forward pass that trains;
    ``memory`` a reason where it could not be estimated."""

    master: Mapping[str, Any]
    version: str
    validated: str
    """By whom, and what became of it, in words."""
    layout: Layout
    microbatch: int
    memory: MemoryEstimate | str


@dataclass(frozen=True, slots=True)
class RecipeCheck:
    """``cluster`` None: the local engine. ``sampling`` None: no rollouts."""

    name: str
    config: Config
    plan: BatchPlan
    sampling: EffectiveSampling | None
    cluster: ClusterCheck | None
    refusals: list[str]
    advice: list[str]

    def write(self, path: Path) -> None:
        """Save what NeMo-RL takes as YAML. Raises ConfigError where that is not another engine's recipe."""
        if self.cluster is None:
            raise ConfigError(f"engine.name {self.config.engine.name}: there is no NeMo-RL config of it to write")
        path.write_text(OmegaConf.to_yaml(OmegaConf.create(dict(self.cluster.master))), encoding="utf-8")


def check(name: str, config: Config, gpu: int) -> RecipeCheck:
    """``gpu``: bytes of one GPU. A recipe without RL steps is one of the SFT stage.

    Raises ConfigError as ``nemo_rl_master_config`` does.
    """
    plan, trains = batch_plan(config), config.grpo.max_num_steps > 0
    sampling = _sampling(config) if trains else None
    if config.engine.name == "local":
        return RecipeCheck(name, config, plan, sampling, None, [], [])
    master = nemo_rl_master_config(config) if trains else nemo_rl_sft_config(config)
    shape = layout(master)
    validated, wrong = _validate(master)
    memory = _memory(config, master, shape, gpu)
    cluster = ClusterCheck(
        master=master,
        version=version(checkout()),
        validated=validated,
        layout=shape,
        microbatch=tokens_per_microbatch(master, "train"),
        memory=memory,
    )
    notes = [*advice(config, master), *_tight(memory), *_other_version(cluster.version)]
    return RecipeCheck(name, config, plan, sampling, cluster, [*wrong, *refusals(config, master)], notes)


def _sampling(config: Config) -> EffectiveSampling:
    """vLLM gets temperature, top-p and top-k with every request, and leaves the rest neutral: of the model's own
    generation config it follows nothing then."""
    asked = training_sampling(config, config.grpo.seed)
    return EffectiveSampling(
        temperature=asked.temperature,
        training_temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        min_p=asked.min_p,
    )


def _validate(master: Mapping[str, Any]) -> tuple[str, list[str]]:
    try:
        wrong = schema_errors(master)
    except NotImportable as error:
        return f"not by NeMo-RL, which cannot be imported here: {error}", []
    return "by NeMo-RL's own config model" + (", which refuses it" if wrong else ""), wrong


def _memory(config: Config, master: Mapping[str, Any], cluster: Layout, gpu: int) -> MemoryEstimate | str:
    try:
        shape = _model_shape(config.policy.model_name)
    except (OSError, ValueError) as error:
        return f"not estimated: {str(error).splitlines()[0]}"
    if cluster.data == 0:
        return "not estimated: the model does not fit on these GPUs as it is cut"
    generates = cluster.generation_gpus >= cluster.generation_tensor > 0 and "generation" in master["policy"]
    keeps_reference = "generation" in master["policy"] and config.loss_fn.reference_policy_kl_penalty > 0
    return MemoryEstimate(
        gpu=gpu,
        parameters=shape.parameters,
        training=training_memory(shape, master, cluster),
        logprobs=logprob_memory(shape, master, cluster) if "generation" in master["policy"] else 0,
        reference=reference_memory(shape, cluster) if keeps_reference else 0,
        generation=generation_memory(shape, master, cluster, gpu) if generates else None,
    )


def _model_shape(model_name: str) -> ModelShape:
    """Raises OSError for a model that is not here, not known and not on the Hub, ValueError for another family."""
    if model_name in KNOWN and not Path(model_name).exists():
        return KNOWN[model_name]
    from transformers import AutoConfig  # the checks of a known model need no transformers

    return shape_of(cast(Any, AutoConfig).from_pretrained(model_name))


def _tight(memory: MemoryEstimate | str) -> list[str]:
    if isinstance(memory, str):
        return []
    room = int(_ROOM * memory.gpu)
    notes = {
        f"training needs {_gib(memory.training.total)} of {_gib(memory.gpu)} by estimate, and a tenth should stay "
        "free: lower policy.dynamic_batching.train_mb_tokens, or shard over more GPUs": memory.training.total > room,
        f"log-probs need {_gib(memory.logprobs)} of {_gib(memory.gpu)} by estimate: lower "
        "policy.dynamic_batching.logprob_mb_tokens": memory.logprobs > room,
        "vLLM's share does not hold the weights: raise gpu_memory_utilization or its tensor_parallel_size": (
            memory.generation is not None and memory.generation.cache <= 0
        ),
    }
    return [note for note, holds in notes.items() if holds]


def _other_version(found: str) -> list[str]:
    return [] if found == VERSION else [f"the checkout is NeMo-RL {found}; this engine is tested against {VERSION}"]


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
