"""The parts of a NeMo-RL v0.7.0 checkout that configuration reads, for tests without one.

The keys are those that our recipes and checks touch; ``tests/nemo_rl/test_nemo_recipes.py`` holds them against the real
files, so they cannot drift apart unseen.
"""

from __future__ import annotations

from pathlib import Path

GRPO = "grpo_math_1B.yaml"
MEGATRON = "grpo_math_1B_megatron.yaml"
SFT = "sft.yaml"

_POLICY = """
policy:
  model_name: of-another-task
  tokenizer: {name: "${policy.model_name}", chat_template_kwargs: null}
  train_global_batch_size: 512
  train_micro_batch_size: 4
  max_total_sequence_length: 512
  precision: bfloat16
  dtensor_cfg:
    _v2: true
    enabled: true
    sequence_parallel: false
    activation_checkpointing: false
    tensor_parallel_size: 1
    context_parallel_size: 1
    automodel_kwargs: {}
    lora_cfg: {enabled: false, dim: 8, alpha: 32, use_triton: true}
  megatron_cfg:
    enabled: false
    sequence_parallel: false
    activation_checkpointing: false
    tensor_model_parallel_size: 1
    pipeline_model_parallel_size: 1
    context_parallel_size: 1
    peft: {enabled: false, dim: 8}
    optimizer: {lr: 5.0e-6, min_lr: 5.0e-7, clip_grad: "${policy.max_grad_norm}"}
    scheduler: {lr_decay_style: constant, lr_warmup_init: 5.0e-7}
  dynamic_batching: {enabled: false, train_mb_tokens: 2048, sequence_length_round: 64}
  sequence_packing:
    enabled: true
    train_mb_tokens: ${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}
  make_sequence_length_divisible_by: ${policy.dtensor_cfg.tensor_parallel_size}
  max_grad_norm: 1.0
  optimizer: {name: torch.optim.AdamW, kwargs: {lr: 5.0e-6}}
"""
_TRAIN_TOKENS = "    train_mb_tokens: ${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}\n"
_LOGPROB_TOKENS = _TRAIN_TOKENS.replace("train_mb", "logprob_mb")
"""Its SFT has no log-prob pass."""
_RUN = """
checkpointing: {save_optimizer: true}
logger: {monitor_gpus: true, wandb: {name: grpo-dev-logger}}
cluster: {gpus_per_node: 1, num_nodes: 1}
"""
_FILES = {
    GRPO: _POLICY.replace(_TRAIN_TOKENS, _TRAIN_TOKENS + _LOGPROB_TOKENS)
    + """
  hf_config_overrides: {}
  logprob_batch_size: ${policy.train_micro_batch_size}
  logprob_chunk_size: null
  generation:
    backend: vllm
    top_k: 50
    vllm_cfg:
      async_engine: false
      precision: ${policy.precision}
      tensor_parallel_size: 1
      pipeline_parallel_size: 1
      gpu_memory_utilization: 0.6
      max_model_len: ${policy.max_total_sequence_length}
    vllm_kwargs: {}
    colocated: {enabled: true, resources: {gpus_per_node: null, num_nodes: null}}
"""
    + _RUN.replace("{save_opt", "{save_consolidated: false, model_save_format: safetensors, save_opt")
    + """
grpo:
  batch_multiplier: 1
  use_dynamic_sampling: false
  reward_shaping: {enabled: false, max_response_length: "${policy.max_total_sequence_length}"}
  reward_scaling: {enabled: false}
loss_fn: {use_kl_in_reward: false}
data: {train: {dataset_name: OpenMathInstruct-2}, default: {env_name: math}}
env: {math: {num_workers: 8}}
data_plane: {enabled: false}
""",
    MEGATRON: """
defaults: grpo_math_1B.yaml
policy: {dtensor_cfg: {enabled: false}, megatron_cfg: {enabled: true}, optimizer: null}
""",
    SFT: _POLICY
    + _RUN.replace("{save_opt", '{metric_name: "val:val_loss", save_opt')
    + """
data:
  shuffle: true
  max_input_seq_length: ${policy.max_total_sequence_length}
  add_bos: true
  train: {dataset_name: squad, split: train}
  validation: {dataset_name: squad, split: validation}
  default: {processor: sft_processor}
sft: {max_num_epochs: 1, max_num_steps: 60, val_global_batch_size: 32, val_micro_batch_size: 1}
""",
}


def make_checkout(folder: Path) -> Path:
    (folder / "nemo_rl").mkdir(parents=True)
    info = "MAJOR = 0\nMINOR = 7\nPATCH = 0\nPRE_RELEASE = ''\n"
    (folder / "nemo_rl" / "package_info.py").write_text(info, encoding="utf-8")
    configs = folder / "examples" / "configs"
    configs.mkdir(parents=True)
    for name, text in _FILES.items():
        (configs / name).write_text(text, encoding="utf-8")
    return folder
