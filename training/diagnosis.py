"""``diagnosis.md``: what a paused run looked like and where to look first, the likeliest cause at the top.

The order is that of public post-mortems: a mismatch of sampler and trainer comes from sampling filters first, then
shifted tokens, number formats, kernels, and the age of the weights; a run that breaks without one, from its rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from environments.task import Role
from training.config import Config
from training.engines.base import EffectiveSampling
from training.mismatch import MAX_TURNS
from training.preflight import switched_on
from training.tripwire import Breach

FILE = "diagnosis.md"
Steps = Sequence[tuple[int, Mapping[str, float]]]
_ALWAYS = (
    "mismatch/{role}/token_mult_prob_error",
    "mismatch/{role}/gen_kl_error",
    "mismatch/{role}/gen_kl_error_k1",
    "mismatch/{role}/is_oob_ratio",
    "episode/{role}/entropy",
    "episode/{role}/tokens",
    "episode/{role}/tool_error_rate",
    "episode/{role}/submitted_rate",
    "reward/{role}/total",
)
_SHARED = ("proposals/valid_rate", "update/grad_norm", "update/skipped", "age/mean", "faults/share")
_COLUMNS = 6
_SAME = 1.01
"""token_mult_prob_error of turns that match."""


def diagnosis(
    breaches: Sequence[Breach], recent: Steps, config: Config, sampling: EffectiveSampling, advice: Sequence[str]
) -> str:
    """Markdown. ``recent`` are (step, metrics), oldest first, at least one; ``advice`` says how to go on."""
    step, last = recent[-1]
    off = any(breach.band.metric.startswith("mismatch/") for breach in breaches)
    causes = mismatch_causes(last, config, sampling) if off else _other_causes(last)
    title = "Sampler and trainer disagree" if off else "Breaks mid-way, while sampler and trainer agree"
    parts = [
        f"# Paused after step {step}",
        "\n".join(f"- {breach}" for breach in breaches),
        "## The last steps",
        _table(recent, [breach.band.metric for breach in breaches]),
        f"## Where to look: {title.lower()}",
        "\n".join(f"{place}. {cause}" for place, cause in enumerate(causes, 1)),
        "## If none of these is it",
        "\n".join(f"- {line}" for line in _other_classes(last)),
        "## How to go on",
        "\n".join(f"- {line}" for line in advice),
    ]
    return "\n\n".join(parts) + "\n"


def mismatch_causes(last: Mapping[str, float], config: Config, sampling: EffectiveSampling) -> list[str]:
    """The five causes in the order to check, each with what this run's own numbers say of it."""
    return [_filters(sampling), _drift(last), _dtype(config), _kernels(config), _age(last, config)]


def _filters(sampling: EffectiveSampling) -> str:
    name = "**Sampling filters or temperature.** "
    on = [f"{field} {getattr(sampling, field):g}" for field in switched_on(sampling)]
    if sampling.temperature != sampling.training_temperature:
        on.append(f"temperature {sampling.temperature:g} against {sampling.training_temperature:g} in training")
    if on:
        return (
            f"{name}Likely: {', '.join(on)}. Rollouts come from another distribution than the one trained; set it off."
        )
    return f"{name}Ruled out by the preflight: no filter and no penalty is on, and both temperatures are one number."


def _drift(last: Mapping[str, float]) -> str:
    name = "**Shifted tokens.** "
    found: list[str] = []
    for role in Role:
        turns = {
            k: last[metric]
            for k in range(1, MAX_TURNS + 1)
            if (metric := f"mismatch/{role}/turn{k}/token_mult_prob_error") in last
        }
        broken = [k for k, value in turns.items() if value > _SAME]
        if broken and broken[0] > 1:
            found.append(f"the {role}'s turns match up to turn {broken[0] - 1} and not from turn {broken[0]} on")
    if found:
        return (
            f"{name}Likely: {'; '.join(found)}. Trained ids are not the sampled ones after a tool result: compare "
            "token_ids of a sample with what the engine was sent (chat template, re-encoded text)."
        )
    return (
        f"{name}Unlikely: where there is a difference, the first turn shows it, before any tool result was spliced in."
    )


def _dtype(config: Config) -> str:
    name = "**Number format of logits or weights.** "
    precision = config.policy.precision
    if precision == "float32" and config.engine.name == "local":
        return f"{name}Ruled out: the weights are one float32 module, and log-probs are taken in float32."
    return f"{name}Possible: weights are {precision}. Run some steps with policy.precision float32 to see it go."


def _kernels(config: Config) -> str:
    name = "**Kernels.** "
    if config.engine.name == "local":
        return (
            f"{name}Rollouts attend over a cache, training over whole sequences; in float32 they agree to 1e-4. Check "
            "this machine by `pytest tests/training/test_local_engine.py -k recomputed`."
        )
    return f"{name}Possible: the inference engine has attention and routing kernels of its own; try it eager."


def _age(last: Mapping[str, float], config: Config) -> str:
    age = last.get("age/mean", 0.0)
    name = "**Age of the weights.** "
    if age > 0:
        return (
            f"{name}Rollouts were {age:.2g} updates old (engine.sync_every {config.engine.sync_every}). Lower it, set "
            "selfplay.max_age, or correct for it by loss_fn.truncated_importance_sampling_type tis."
        )
    return f"{name}Ruled out: every rollout was of the weights that were trained."


def _other_causes(last: Mapping[str, float]) -> list[str]:
    rewards = ", ".join(f"{role} {last[name]:.3g}" for role in Role if (name := f"reward/{role}/total") in last)
    return [
        "**Mismatch, once more.** Its bands hold, so ratios are right; where this recipe has none, set them first.",
        "**Entropy.** A fall to 0: a lower learning rate, or a KL penalty; a rise with formats broken: see below.",
        f"**Rewards that push away.** Mean rewards: {rewards or 'none'}. Pay below 0 for what is malformed makes the "
        "policy say less and less that can be checked; let nothing be paid below 0.",
        "**Gradient norm.** Jumps with single batches: read those samples. A steady rise: lower the learning rate.",
        "**Length.** Episodes that grow to the cut: overlong_filtering, fewer turns, a length in the prompt.",
        f"**Valid rate** {last.get('proposals/valid_rate', 0.0):.2f}. See in proposals/refusal/* which reason grew.",
    ]


def _other_classes(last: Mapping[str, float]) -> list[str]:
    groups = sum(last.get(f"groups/{role}/all", 0.0) for role in Role)
    flat = sum(last.get(f"groups/{role}/zero_variance", 0.0) for role in Role) / max(groups, 1.0)
    errors = max(last.get(f"episode/{role}/tool_error_rate", 0.0) for role in Role)
    return [
        f"**The reward never rose** (tool errors {errors:.2f}, groups without variance {flat:.2f}): the questions are "
        "too hard or the parser too strict. Ask fewer hops, or imitate longer (sft.max_num_steps).",
        "**The reward rose and val/* did not**: a component can be had without the ability. Read samples, and turn "
        "components off one by one.",
        f"**Both stand still** (groups without variance {flat:.2f}): the Proposer asks favourites, or the questions "
        "are too easy by now. Other seeds, selfplay.pool_share, more hops.",
    ]


def _table(recent: Steps, first: Sequence[str]) -> str:
    """One row a metric, the breached ones on top, one column a step."""
    shown = list(recent)[-_COLUMNS:]
    usual = [name.format(role=role) for name in _ALWAYS for role in Role] + list(_SHARED)
    names = [name for name in dict.fromkeys((*first, *usual)) if any(name in values for _, values in shown)]
    head = f"| | {' | '.join(f'step {step}' for step, _ in shown)} |"
    rule = "|---|" + "---:|" * len(shown)
    rows = [
        f"| {name} | {' | '.join(f'{values[name]:.4g}' if name in values else '' for _, values in shown)} |"
        for name in names
    ]
    return "\n".join([head, rule, *rows])
