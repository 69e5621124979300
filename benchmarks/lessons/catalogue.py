"""The lessons. Each claim is one that larger runs paid for; the variants put it on trial at the size of two cores."""

from __future__ import annotations

from lesson import SFT, Check, Lesson, Variant

ACCURACY = ("val/overall/accuracy", "Held-out accuracy", "right answers, share")
TWO_HOPS = ("val/hops2/accuracy", "Held-out accuracy, 2 hops", "right answers, share")
VALID = ("proposals/valid_rate", "Accepted proposals", "share of proposals")
TRUE = ("proposals/true_rate", "True questions", "share of accepted ones")
DISTINCT = ("proposals/distinct_rate", "Different questions", "share of accepted ones")
SOLVED = ("reward/solver/total", "Solver reward", "mean of a rollout")
MISMATCH = ("mismatch/solver/token_mult_prob_error", "Mismatch, Solver", "mean exp |difference|; 1 is equal")

PLAIN = Variant(name="plain", shared=True)
"""The lessons' recipe as it is: the healthy run beside every failure."""

STARTS = {
    SFT: Variant(name=SFT, start="", shared=True, overrides=("sft.max_num_steps=40", "grpo.max_num_steps=0")),
}

_BY_STD = ("grpo.normalize_by=std",)  # advantages by mean need pay from 0 up
_GROUPS_OF_FAILURES = (
    *_BY_STD,
    "selfplay.proposer_prompts_per_step=8",
    "selfplay.proposer_generations=8",
    "selfplay.role_weights.proposer=1.0",
)

DUPLICATES = Lesson(
    letter="h",
    name="Copies in the corpus",
    claim="Masses of copied mails fill the search results and add noise; cleaning before indexing removes them.",
    variants=(
        Variant(
            name="copies",
            overrides=(
                "corpus.source='company:seed=11,projects=120,duplicates=1.0,forwards=0.5'",
                "corpus.cleaning.exact_duplicates=false",
            ),
        ),
        Variant(
            name="cleaned", overrides=("corpus.source='company:seed=11,projects=120,duplicates=1.0,forwards=0.5'",)
        ),
        PLAIN,
    ),
    checks=(
        Check(
            part="failure", says="Solvers find less among the copies", metric=SOLVED[0], variant="copies",
            other="cleaned", below=True, margin=0.05,
        ),
        Check(
            part="cure", says="cleaned, the held-out accuracy keeps up with a corpus without copies",
            metric=ACCURACY[0], variant="cleaned", other="plain", margin=-0.05,
        ),
    ),
    shown=(SOLVED, VALID, ACCURACY),
    scale="copies are read as well as originals, and four hits leave room for one of them; only look-ups with many "
    "look-alikes lose the mail they need",
)  # fmt: skip

LOSSES = Lesson(
    letter="k",
    name="Policy losses",
    claim="GSPO and its relatives are steadier than GRPO on long multi-turn episodes.",
    variants=(
        Variant(name="grpo", overrides=_BY_STD),
        Variant(name="dr_grpo", overrides=("grpo.normalize_rewards=false", "loss_fn.constant_length=64")),
        Variant(
            name="gspo",
            overrides=(
                *_BY_STD,
                "loss_fn.sequence_level_importance_ratios=true",
                "loss_fn.token_level_loss=false",
                "loss_fn.ratio_clip_min=0.02",  # the learning rate is 500 times that of the paper's 3e-4
                "loss_fn.ratio_clip_max=0.03",
            ),
        ),
        Variant(name="sapo", overrides=(*_BY_STD, "loss_fn.use_sapo=true")),
        Variant(name="cispo", overrides=(*_BY_STD, "loss_fn.use_cispo=true")),
        PLAIN,
    ),
    checks=(
        Check(
            part="failure", says="GRPO ends below GSPO", metric=ACCURACY[0], variant="grpo", other="gspo",
            below=True, margin=0.03,
        ),
        Check(
            part="cure", says="GSPO rises above its start", metric=ACCURACY[0], variant="gspo", margin=0.03,
        ),
    ),
    shown=(ACCURACY, TWO_HOPS, ("update/grad_norm", "Gradient norm", "before clipping")),
    scale="with two or three optimiser steps a batch the ratios hardly leave 1, so the losses differ in how they weigh "
    "tokens and little else",
)  # fmt: skip

LESSONS = {lesson.letter: lesson for lesson in (DUPLICATES, LOSSES)}
