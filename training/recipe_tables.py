"""A ``RecipeCheck`` as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from training.console import printable
from training.preflight import describe
from training.recipe_check import ClusterCheck, MemoryEstimate, RecipeCheck

_GIB = 2**30
_PARTS = {
    "weights": "sharded over the training GPUs",
    "gradients": "of what is trained, sharded",
    "optimizer": "Adam's moments, sharded",
    "gathered": "layers in one piece while they compute",
    "activations": "of a micro-batch",
    "logits": "of a micro-batch, whole vocabulary",
}


def render(found: RecipeCheck) -> RenderableType:
    return Group(*_parts(found))


def _parts(found: RecipeCheck) -> Iterator[RenderableType]:
    config, cluster = found.config, found.cluster
    yield Text(f"{found.name}: {config.policy.model_name}, engine {config.engine.name}", style="bold")
    yield Text("valid by our schema" + (f"; {cluster.validated}" if cluster else ""))
    if cluster:
        yield Text(f"NeMo-RL {cluster.version}, over its {_defaults(found)}")
        yield _gpus(cluster)
    yield _batch(found)
    if cluster:
        memory = cluster.memory
        if isinstance(memory, str):
            yield Text(f"Memory {memory}\n")
        else:
            yield _memory(memory, config.policy.max_total_sequence_length)
    if found.sampling:
        yield Text("\n".join(describe(found.sampling)) + "\n")
    for note in found.advice:
        yield _point("note", note, "yellow")
    for reason in found.refusals:
        yield _point("refused", reason, "bold red")
    if not found.refusals:
        yield _point("ok", "nothing known stands against this recipe", "green")


def _defaults(found: RecipeCheck) -> str:
    section = found.config.nemo_rl
    return section.defaults if found.sampling else section.sft_defaults


def _gpus(cluster: ClusterCheck) -> Table:
    shape = cluster.layout
    table = _table("GPUs", "", *(f">{name}" for name in ("GPUs", "tensor", "pipeline", "context", "copies")))
    cut = (shape.training_gpus, shape.tensor, shape.pipeline, shape.context, shape.data)
    table.add_row(f"training, {shape.backend}", *map(str, cut))
    if shape.generation_gpus:
        where = "the same GPUs" if shape.colocated else "GPUs of its own"
        gpus, each, copies = map(str, (shape.generation_gpus, shape.generation_tensor, shape.generation_copies))
        table.add_row(f"generation, {where}", gpus, each, "", "", copies)
    table.add_row("world size", str(shape.gpus), style="bold")
    return table


def _batch(found: RecipeCheck) -> Table:
    """The arithmetic of a step, a line for each product."""
    config, plan, cluster = found.config, found.plan, found.cluster
    table = _table("Batch", "", ">rows", "")
    if found.sampling is None:
        rows, steps = config.sft.trajectories_per_step, 1
        table.add_row("SFT rows", str(rows), "sft.trajectories_per_step")
    else:
        play, rows, steps = config.selfplay, plan.optimiser_step, plan.optimiser_steps
        if plan.proposer:
            prompts, each = play.proposer_prompts_per_step, play.proposer_generations
            table.add_row("Proposer rollouts", str(plan.proposer), f"{prompts} groups x {each}")
        each = play.solver_generations if plan.proposer else config.grpo.num_generations_per_prompt
        table.add_row("Solver rollouts, at most", str(plan.solver), f"{plan.solver // each} groups x {each}")
        if plan.hinted:
            table.add_row("hinted rollouts, untrained", str(plan.hinted), f"{play.hint_generations} a question")
        table.add_row("trained, at most", str(plan.trained), "both roles")
    table.add_row("optimiser step", str(rows), f"{steps} a batch")
    if cluster and cluster.layout.data:
        longest = config.policy.max_total_sequence_length
        full = f"{cluster.microbatch // longest} of full length"
        table.add_row("a copy's share of it", str(-(-rows // cluster.layout.data)), f"{cluster.layout.data} copies")
        table.add_row("micro-batch", "", f"{cluster.microbatch:,} padded tokens: {full}")
    return table


def _memory(memory: MemoryEstimate, longest: int) -> Table:
    title = f"Memory by formula, GiB a GPU of {memory.gpu / _GIB:.0f} ({memory.parameters / 1e9:.2f} B parameters)"
    table = _table(title, "", ">GiB", "")
    for part in fields(memory.training):
        table.add_row(part.name, _gib(getattr(memory.training, part.name)), _PARTS[part.name])
    table.add_row("training, in all", _gib(memory.training.total), style="bold")
    if memory.logprobs:
        table.add_row("log-probs, in all", _gib(memory.logprobs), style="bold")
    if memory.reference:
        table.add_row("reference", _gib(memory.reference), "of host memory, all processes together")
    if memory.generation:
        engine = memory.generation
        table.add_row("generation: vLLM's share", _gib(engine.reserved), style="bold")
        table.add_row("  weights", _gib(engine.weights))
        episodes = engine.episodes(longest)
        table.add_row("  keys and values", _gib(engine.cache), f"{episodes} full-length episodes an engine")
    return table


def _table(title: str, *columns: str) -> Table:
    """``>`` before a column's name: on the right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1))
    for name in columns:
        table.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left")
    return table


def _point(word: str, text: str, style: str) -> Text:
    return Text.assemble((f"{word}: ", style), printable(text))


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f}"
