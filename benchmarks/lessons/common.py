"""What the lessons share: the metrics of their pictures and rules, the healthy run, the starts."""

from __future__ import annotations

from lesson import SFT, Variant

ACCURACY = ("val/overall/accuracy", "Held-out accuracy", "right answers, share")
TWO_HOPS = ("val/hops2/accuracy", "Held-out accuracy, 2 hops", "right answers, share")
VALID = ("proposals/valid_rate", "Accepted proposals", "share of proposals")
TRUE = ("proposals/true_rate", "True questions", "share of accepted ones")
DISTINCT = ("proposals/distinct_rate", "Different questions", "share of accepted ones")
SOLVED = ("reward/solver/total", "Solver reward", "mean of a rollout")
SHARE = ("selection/proposer/token_share_after", "Trained tokens of the Proposer", "share")
MISMATCH = ("mismatch/solver/token_mult_prob_error", "Mismatch, Solver", "mean exp |difference|; 1 is equal")

FAR, FAR_TWO_HOPS = 0.1, 0.2
"""Two standard errors, or nearly, of a difference between two runs: a validation asks 120 questions, 48 of two hops."""

PLAIN = Variant(name="plain", shared=True)
"""The lessons' recipe as it is: the healthy run beside every failure."""

STARTS = {
    SFT: Variant(name=SFT, start="", shared=True, overrides=("sft.max_num_steps=40", "grpo.max_num_steps=0")),
    "sft_apart": Variant(
        name="sft_apart", start="", shared=True,
        overrides=("sft.max_num_steps=40", "grpo.max_num_steps=0", "env.outputs=apart"),
    ),
}  # fmt: skip

BY_STD = ("grpo.normalize_by=std",)  # advantages by mean need pay from 0 up
UNGUARDED = (
    "selfplay.hops={1: 1.0}",
    "selfplay.spread_questions=false",
    "selfplay.pool_share=0.0",
    "selfplay.role_weights.proposer=1.0",
    "selfplay.proposer_prompts_per_step=8",
    "selfplay.proposer_generations=8",
)
"""A Proposer that moves fast, and Solvers that get what it asks as it comes: a hack has free way."""
