"""Train the small model of ``examples/models/futari-1m`` from nothing: tokenizer, random weights, scripted experts.

    uv run examples/make_base_model.py --steps 3200 --out runs/base_model_second/start
    uv run examples/make_base_model.py --config examples/configs/base_model_second.yaml --steps 1600 \\
        --out runs/base_model_third/start
    uv run examples/make_base_model.py --config examples/configs/base_model_third.yaml --steps 1600 \\
        --out examples/models/futari-1m

Companies with seeds from 100,000 up are used, so no run's company is among them, and their names come from the train
split alone. A killed command, given again, goes on from the last checkpoint. One process writes demonstrations, this
one trains; both are seeded, so the same machine repeats the run.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from transformers import LlamaConfig, PreTrainedTokenizerBase

from corpus_index.backends import open_memory_index
from corpus_index.files import write_atomic
from corpus_index.sources.company import Company
from corpus_index.sources.company_spec import CompanySpec
from environments.chat_format import ChatFormat
from environments.episode import Episode
from environments.tools import ToolBox
from environments.trajectory import Trajectory
from training.checkpoint import CheckpointManager
from training.config import Config
from training.config_load import load_config
from training.engines.local import LocalEngine
from training.engines.models import load_policy
from training.engines.optimisation import OptimiserSettings
from training.experts import Habits, demonstrations
from training.seeds import seed_text
from training.tokenizer import train_tokenizer

FIRST_COMPANY = 100_000
PER_COMPANY = 400
MUON_RATIO = 0.02 / 3e-3  # of Muon's learning rate to that of the weights Adam trains
SHUFFLE = 2_000  # trajectories held back and drawn at random, so that a batch mixes companies
VOCABULARY = 2_048
SHAPE = {
    "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 384, "max_position_embeddings": 1024, "tie_word_embeddings": True,
}  # fmt: skip


def company_demonstrations(config: Config, tokenizer: PreTrainedTokenizerBase, seed: int) -> Iterator[Trajectory]:
    chat = ChatFormat(tokenizer)
    company = Company(CompanySpec(seed=seed, projects=60 + seed % 80, duplicates=0.0))
    toolbox = ToolBox(open_memory_index(company.documents()), config.tools, special_tokens=chat.special_tokens())
    return demonstrations(
        company, Episode(toolbox, config.env), chat, random.Random(seed),
        proposer_share=config.sft.proposer_share, proposer_hops=config.sft.proposer_hops,
        solver_hops=config.sft.solver_hops, seed_text=seed_text,
        habits=Habits(slip=config.sft.slip, wander=config.sft.wander), relation_weights=config.sft.relation_weights,
        even_sorts=config.sft.even_sorts,
    )  # fmt: skip


def make_start(config: Config, folder: Path) -> None:
    """A folder with the tokenizer and the shape; the weights are drawn when it is loaded."""
    texts: list[str] = []
    plain = train_tokenizer(["x"], 300, SHAPE["max_position_embeddings"])
    for seed in range(FIRST_COMPANY - 12, FIRST_COMPANY):
        stream = company_demonstrations(config, plain, seed)
        texts += [message["content"] for _ in range(PER_COMPANY) for message in next(stream).messages]
    tokenizer = train_tokenizer(texts, VOCABULARY, SHAPE["max_position_embeddings"])
    tokenizer.save_pretrained(folder)
    LlamaConfig(
        vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None, architectures=["LlamaForCausalLM"], **SHAPE,
    ).save_pretrained(folder)  # fmt: skip


def _produce(config: Config, folder: Path, out: mp.Queue[list[Trajectory]]) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    seed = FIRST_COMPANY + 1000 * (config.sft.seed - 1)
    while True:
        stream = company_demonstrations(config, tokenizer, seed)
        # Messages are for reading; the trainer needs only the ids.
        out.put([replace(next(stream), messages=(), events=()) for _ in range(PER_COMPANY)])
        seed += 1


def batches(config: Config, folder: Path, size: int) -> Iterator[list[Trajectory]]:
    context = mp.get_context("spawn")
    queue: mp.Queue[list[Trajectory]] = context.Queue(maxsize=8)
    context.Process(target=_produce, args=(config, folder, queue), daemon=True).start()
    rng, pool = random.Random(config.sft.seed), list[Trajectory]()
    while True:
        while len(pool) < SHUFFLE:
            pool += queue.get()
        yield [pool.pop(rng.randrange(len(pool))) for _ in range(size)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=Path("examples/configs/base_model.yaml"))
    parser.add_argument("--steps", type=int, default=3200)
    parser.add_argument("--stop-after", type=int, help="end early, on the schedule of --steps (for checks)")
    parser.add_argument("--out", type=Path, required=True)
    args, overrides = parser.parse_known_args()
    config = load_config(args.config, overrides)
    start = Path(config.policy.model_name)
    if config.policy.init == "random":
        make_start(config, start)
    engine = make_engine(config, args.steps)
    saved = CheckpointManager(start.parent / "checkpoints", keep_top_k=None, save_period=200)
    found = saved.resume(engine)
    done, tokens = (found.step, int(found.loop_state["tokens"])) if found else (0, 0)
    args.out.mkdir(parents=True, exist_ok=True)
    record = args.out / "training.jsonl"
    # Lines of steps that a killed run made after its last checkpoint: they come again.
    lines = record.read_bytes().splitlines(keepends=True) if found and record.is_file() else []
    write_atomic(record, b"".join(line for line in lines if json.loads(line)["step"] <= done))
    log = record.open("a")
    stream = batches(config, start, config.sft.trajectories_per_step)
    for _ in range(done):
        next(stream)
    began, before = time.monotonic(), tokens
    for step in range(done + 1, (args.stop_after or args.steps) + 1):
        batch = next(stream)
        metrics = engine.sft(batch)
        tokens += sum(len(t.token_ids) for t in batch)
        if step <= 10 or step % 50 == 0:
            line = {"step": step, "tokens": tokens} | {k: metrics[k] for k in ("loss", "token_accuracy", "lr")}
            log.write(json.dumps(line) + "\n")
            log.flush()
            print(f"{line}  {(tokens - before) / (time.monotonic() - began):.0f} tokens/s", flush=True)
        if saved.due(step):
            saved.save(step, engine, {"tokens": tokens})
    engine.policy.model.save_pretrained(args.out)
    engine.policy.tokenizer.save_pretrained(args.out)


def make_engine(config: Config, steps: int) -> LocalEngine:
    policy = load_policy(config.policy, device=torch.device("cpu"), seed=config.sft.seed)
    optimiser = OptimiserSettings(
        name="muon", lr=config.sft.learning_rate, muon_lr=config.sft.learning_rate * MUON_RATIO, betas=(0.9, 0.95),
        weight_decay=0.01, warmup_steps=config.sft.warmup_steps, decay_steps=steps, decay="linear",
    )  # fmt: skip
    chat = ChatFormat(policy.tokenizer)
    empty = ToolBox(open_memory_index(Company(CompanySpec(projects=4)).documents()), config.tools)
    return LocalEngine(config, policy, chat, Episode(empty, config.env), sft=optimiser)


if __name__ == "__main__":
    main()
