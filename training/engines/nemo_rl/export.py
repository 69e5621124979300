"""A checkpoint of NeMo-RL's as a Hugging Face folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

WEIGHTS, OPTIMIZER, TOKENIZER = "weights", "optimizer", "tokenizer"
_CONSOLIDATED = Path(WEIGHTS) / "model" / "consolidated"


def lay_out(folder: Path) -> bool:
    """Move the consolidated weights, where the backend wrote some, and a copy of the tokenizer to ``folder`` itself, so
    that ``from_pretrained(folder)`` reads it. Returns whether it does now."""
    consolidated = folder / _CONSOLIDATED
    if consolidated.is_dir():
        for file in consolidated.iterdir():
            file.rename(folder / file.name)
        consolidated.rmdir()
    tokenizer = folder / TOKENIZER
    if tokenizer.is_dir():
        shutil.copytree(tokenizer, folder, dirs_exist_ok=True)
    return (folder / "config.json").is_file()


def converter_command(checkpoint: Path, config: Path, out: Path, source: Path) -> list[str]:
    """NeMo-RL's own converter for a checkpoint without consolidated weights, run in its checkout ``source``.

    ``config`` is NeMo-RL's resolved config as YAML. Raises FileNotFoundError for a folder that is neither Megatron's
    (``weights/iter_*``) nor torch's distributed format (``weights/.metadata``).
    """
    weights = checkpoint / WEIGHTS
    megatron = sorted(weights.glob("iter_*"))
    scripts = source / "examples" / "converters"
    if megatron:
        script, where = "convert_megatron_to_hf.py", ["--megatron-ckpt-path", str(megatron[-1])]
        extra = ["--extra", "mcore"]
    elif (weights / ".metadata").is_file():
        script, where, extra = "convert_dcp_to_hf.py", ["--dcp-ckpt-path", str(weights)], []
    else:
        raise FileNotFoundError(
            f"{weights} holds neither iter_* (Megatron) nor .metadata (torch's distributed checkpoints): what DTensor "
            "v2 writes as safetensors can be exported only with checkpointing.save_consolidated true"
        )
    return ["uv", "run", *extra, str(scripts / script), "--config", str(config), *where, "--hf-ckpt-path", str(out)]


def convert(checkpoint: Path, config: Path, out: Path, source: Path) -> None:
    """Run the converter. Raises RuntimeError with its last lines."""
    command = converter_command(checkpoint, config, out, source)
    done = subprocess.run(command, cwd=source, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        tail = " / ".join(done.stderr.strip().splitlines()[-3:])
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {tail}")
    shutil.copytree(checkpoint / TOKENIZER, out, dirs_exist_ok=True)
