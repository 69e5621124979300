"""``nemo_rl``: what only NeMo-RL has a name for, kept under its own names. ``training.engines.nemo_rl_config`` lays it
over the defaults file of the NeMo-RL checkout; the local engine reads none of it.
"""

from __future__ import annotations

from pydantic import ConfigDict

from training.config_base import PositiveInt, Section


class AsyncGrpoConfig(Section):
    """Rollouts run ahead of training, on GPUs of their own. NeMo-RL's section and names."""

    enabled: bool = False
    max_trajectory_age_steps: PositiveInt = 1
    """Rollouts wait rather than be older than this many updates when they are trained."""
    in_flight_weight_updates: bool = False
    """New weights reach episodes that are under way; they pay off from an age of 2 on."""
    recompute_kv_cache_after_weight_updates: bool = False


class Overlay(Section):
    """Any keys, in NeMo-RL's names. Parents' and children's mappings are merged at every depth; a leading ``+``, as on
    NeMo-RL's command line, adds a key that its defaults file leaves out."""

    model_config = ConfigDict(extra="allow")


class NemoRlConfig(Section):
    defaults: str = "examples/configs/grpo_math_1B.yaml"
    """The file in the NeMo-RL checkout that fills in what neither this section nor the others say."""
    sft_defaults: str = "examples/configs/sft.yaml"
    """The same for its SFT."""
    grpo: Overlay = Overlay()
    loss_fn: Overlay = Overlay()
    policy: Overlay = Overlay()
    """For example ``dtensor_cfg``, ``megatron_cfg``, ``sequence_packing`` and ``generation.vllm_cfg``."""
    data: Overlay = Overlay()
    env: Overlay = Overlay()
    logger: Overlay = Overlay()
    checkpointing: Overlay = Overlay()
    cluster: Overlay = Overlay()
    data_plane: Overlay = Overlay()
    sft: Overlay = Overlay()
