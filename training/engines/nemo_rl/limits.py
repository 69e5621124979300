"""What NeMo-RL v0.7.0 is known to break on, or to do otherwise than it seems, read off a resolved config before a
cluster is held for it. Most of these end a run minutes after its start; some never do, which is worse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.batch_plan import batch_plan
from training.config import Config
from training.engines.nemo_rl.layout import Layout, layout


def refusals(config: Config, master: Mapping[str, Any]) -> list[str]:
    """Why a run of this config would break; empty where nothing known stands against it. ``master`` is what
    ``nemo_rl_master_config`` made of ``config``."""
    shape = layout(master)
    reasons = {**_model(config), **_batches(master, shape), **_parallelism(master, shape)}
    if "generation" in master["policy"]:
        reasons |= {
            **_rollouts(config),
            **_asynchronous(config, master, shape),
            **_generation(config, master, shape),
            **_loop(master),
        }
    return [reason for reason, holds in reasons.items() if holds]


def advice(config: Config, master: Mapping[str, Any]) -> list[str]:
    """What runs, but less well than it could or otherwise than it reads."""
    policy, loss = master["policy"], config.loss_fn
    if "generation" not in policy:
        return []
    plan, shape = batch_plan(config), layout(master)
    age = config.grpo.async_grpo
    sequences = loss.sequence_level_importance_ratios
    clip = max(loss.ratio_clip_min, loss.ratio_clip_max)
    ratio = not (loss.disable_ppo_ratio or loss.force_on_policy_ratio)
    notes = {
        f"the clip {clip:g} never acts: a batch is one optimiser step, so every ratio is 1 when it is taken; set "
        "policy.train_global_batch_size to a part of the batch for the clip to bind": (
            ratio and plan.optimiser_steps == 1 and not age.enabled
        ),
        f"the clip {clip:g} never acts on a sequence ratio, a mean over tokens that moves by some 1e-3; GSPO's own "
        "bounds are 3e-4 and 4e-4": ratio and sequences and clip > 0.01,
        "GSPO with sequence packing: v0.7.0 takes the loss one sequence at a time, so it is right, but its own GSPO "
        "recipe runs without": sequences and policy["sequence_packing"]["enabled"],
        f"an optimiser step of {plan.optimiser_step} rollouts does not divide over {shape.data} data-parallel copies: "
        "each one is filled up with rows that are computed and not counted": (
            shape.data > 0 and plan.optimiser_step % shape.data != 0
        ),
        f"grpo.async_grpo.max_trajectory_age_steps {age.max_trajectory_age_steps} gains nothing without "
        "in_flight_weight_updates": (
            age.enabled and age.max_trajectory_age_steps > 1 and not age.in_flight_weight_updates
        ),
        "vllm_cfg.async_engine is off: every turn of a rollout waits for the slowest episode of the batch": (
            not policy["generation"]["vllm_cfg"]["async_engine"]
        ),
        "checkpointing.save_consolidated is off: no converter of NeMo-RL's reads the shards that DTensor v2 saves": (
            shape.backend == "dtensor"
            and not master["checkpointing"]["save_consolidated"]
            and master["checkpointing"]["model_save_format"] == "safetensors"
        ),
        "Megatron reads TORCH_CUDA_ARCH_LIST; outside NeMo-RL's container set it, for example to 9.0": (
            shape.backend == "megatron"
        ),
    }
    return [note for note, holds in notes.items() if holds]


def _model(config: Config) -> dict[str, bool]:
    name = config.policy.model_name
    return {
        f"policy.model_name {name}: NeMo-RL reads Hugging Face folders and Hub ids, no GGUF": (
            name.startswith("gguf:") or name.endswith(".gguf")
        ),
        "policy.init random: NeMo-RL's workers load weights; write some first (examples/make_base_model.py)": (
            config.policy.init == "random"
        ),
    }


def _rollouts(config: Config) -> dict[str, bool]:
    return {
        "policy.generation.min_p: NeMo-RL's vLLM workers have no such filter": config.policy.generation.min_p != 0,
        f"sft.max_num_steps {config.sft.max_num_steps}: NeMo-RL's policy has one optimiser, that of RL; run the SFT "
        "stage first, set policy.model_name to what it wrote, and this to 0": config.sft.max_num_steps > 0,
    }


def _asynchronous(config: Config, master: Mapping[str, Any], shape: Layout) -> dict[str, bool]:
    loss, generation = config.loss_fn, master["policy"]["generation"]
    on = config.grpo.async_grpo.enabled
    return {
        "grpo.async_grpo with generation on the training GPUs: both must run at once; set "
        "nemo_rl.policy.generation.colocated.enabled to false and give it resources": on and shape.colocated,
        "grpo.async_grpo with sequence_level_importance_ratios (GSPO): older rollouts need the correction, and NeMo-RL "
        "weighs a sequence by a product over its tokens, which shrinks long episodes to nothing; use token ratios": (
            on and loss.sequence_level_importance_ratios
        ),
        "grpo.async_grpo without loss_fn.use_importance_sampling_correction: rollouts come from older weights, and the "
        "gradient would be that of another policy; turn the correction on": (
            on and not loss.use_importance_sampling_correction and not loss.sequence_level_importance_ratios
        ),
        "grpo.async_grpo with vllm_cfg.async_engine off: the sync engine cannot take requests while others run; set "
        "nemo_rl.policy.generation.vllm_cfg.async_engine to true": (
            on and generation["backend"] == "vllm" and not generation["vllm_cfg"]["async_engine"]
        ),
    }


def _batches(master: Mapping[str, Any], shape: Layout) -> dict[str, bool]:
    policy = master["policy"]
    step, copies, rows = policy["train_global_batch_size"], shape.data, policy["train_micro_batch_size"]
    dynamic, packed = policy["dynamic_batching"]["enabled"], policy["sequence_packing"]["enabled"]
    share = step // copies if copies else 0
    own_loop = "sft" in master  # in RL the engine fills an optimiser step up with masked rows
    return {
        "policy.dynamic_batching and nemo_rl.policy.sequence_packing are both on: turn one off": dynamic and packed,
        "policy.dynamic_batching with pipeline stages: NeMo-RL has it for one stage only; turn it off and "
        "nemo_rl.policy.sequence_packing on": dynamic and shape.pipeline > 1,
        f"an optimiser step of {step} rows does not divide over {copies} data-parallel copies: set "
        f"sft.trajectories_per_step to a multiple of {copies}": own_loop and copies > 0 and step % copies != 0,
        f"{share} rows a copy do not divide into micro-batches of {rows}: set "
        "nemo_rl.policy.train_micro_batch_size to a divisor, or turn policy.dynamic_batching on": (
            own_loop and not dynamic and not packed and share % rows != 0
        ),
    }


def _parallelism(master: Mapping[str, Any], shape: Layout) -> dict[str, bool]:
    policy = master["policy"]
    dtensor, megatron = policy["dtensor_cfg"], policy["megatron_cfg"]
    on_dtensor = shape.backend == "dtensor"
    lora = dtensor.get("lora_cfg", {})
    packed, rows = policy["sequence_packing"]["enabled"], policy["train_micro_batch_size"]
    return {
        "dtensor_cfg and megatron_cfg are both on, or both off: exactly one backend trains": (
            bool(dtensor["enabled"]) == bool(megatron["enabled"])
        ),
        f"{shape.training_gpus} training GPUs do not divide into models of {shape.model_parallel} "
        f"(tensor {shape.tensor} x pipeline {shape.pipeline} x context {shape.context})": (
            shape.training_gpus < shape.model_parallel or shape.training_gpus % shape.model_parallel != 0
        ),
        f"tensor parallelism of {shape.tensor} with micro-batches of other sizes for training and log-probs: the two "
        "passes differ in rounding, and every ratio with them; make logprob_batch_size equal train_micro_batch_size": (
            shape.tensor >= 4 and policy.get("logprob_batch_size", rows) != rows
        ),
        "context parallelism of DTensor with sequence packing: NeMo-RL refuses it; turn packing off or use Megatron": (
            on_dtensor and shape.context > 1 and packed
        ),
        "context parallelism of DTensor with sequence_parallel breaks in its worker: turn one off": (
            on_dtensor and shape.context > 1 and shape.tensor > 1 and dtensor["sequence_parallel"]
        ),
        "context parallelism of Megatron without sequence packing: turn nemo_rl.policy.sequence_packing on": (
            not on_dtensor and shape.context > 1 and not packed
        ),
        "dtensor_cfg.lora_cfg needs dtensor_cfg._v2": on_dtensor and _on(lora) and not dtensor.get("_v2", False),
        "dtensor_cfg.lora_cfg.use_triton with tensor parallelism: its kernels know no shards; set it to false": (
            on_dtensor and _on(lora) and shape.tensor > 1 and lora.get("use_triton", True)
        ),
        "dtensor_cfg.lora_cfg with Megatron does nothing: set megatron_cfg.peft": not on_dtensor and _on(lora),
    }


def _generation(config: Config, master: Mapping[str, Any], shape: Layout) -> dict[str, bool]:
    policy, cluster = master["policy"], master["cluster"]
    own, engine = policy["generation"]["colocated"]["resources"], policy["generation"]["vllm_cfg"]
    precision = engine["precision"]
    return {
        f"{shape.generation_gpus} generation GPUs do not divide into engines of {shape.generation_tensor}: set "
        "nemo_rl.policy.generation.colocated.resources, or vllm_cfg.tensor_parallel_size": (
            shape.generation_gpus < shape.generation_tensor or shape.generation_gpus % shape.generation_tensor != 0
        ),
        f"generation has GPUs of its own and takes {own['gpus_per_node']} of a node's {cluster['gpus_per_node']}: on "
        "several nodes it must take whole ones": (
            not shape.colocated and cluster["num_nodes"] > 1 and own["gpus_per_node"] != cluster["gpus_per_node"]
        ),
        f"vllm_cfg.max_model_len {engine['max_model_len']} is below policy.max_total_sequence_length "
        f"{policy['max_total_sequence_length']}: episodes would be cut where training still has room": (
            engine["max_model_len"] < policy["max_total_sequence_length"]
        ),
        f"generation in {precision} and training in {config.policy.precision} without the correction: every ratio is "
        "off by the rounding; make them one, or set loss_fn.use_importance_sampling_correction": (
            precision != config.policy.precision and not config.loss_fn.use_importance_sampling_correction
        ),
    }


def _loop(master: Mapping[str, Any]) -> dict[str, bool]:
    """Parts of NeMo-RL's own loop, which the self-play loop takes the place of."""
    grpo = master["grpo"]
    one_out = " (and with the leave-one-out baseline it drops the only winner)"
    return {
        "nemo_rl.grpo.use_dynamic_sampling drops single rollouts out of their groups"
        f"{one_out if grpo['use_leave_one_out_baseline'] else ''}: groups of equal rewards are left out as it is, and "
        "selfplay.refill_rounds rolls out others": grpo["use_dynamic_sampling"],
        "nemo_rl.grpo.reward_shaping measures the first assistant message alone, which is one turn of many": (
            grpo["reward_shaping"]["enabled"]
        ),
        "nemo_rl.grpo.reward_scaling is never applied: rewards are paid by the rewards section": (
            grpo["reward_scaling"]["enabled"]
        ),
        "nemo_rl.env.should_use_nemo_gym replaces the rollouts that our environments play in": bool(
            master["env"].get("should_use_nemo_gym")
        ),
        "nemo_rl.data_plane is a part of NeMo-RL's own loop": bool((master.get("data_plane") or {}).get("enabled")),
    }


def _on(section: Mapping[str, Any]) -> bool:
    return bool(section.get("enabled"))
