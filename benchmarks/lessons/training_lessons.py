"""Lessons on the update: what is sampled, selected, weighted and gone on with."""

from __future__ import annotations

from common import ACCURACY, BY_STD, FAR, FAR_TWO_HOPS, MISMATCH, PLAIN, SHARE, SOLVED, TWO_HOPS, UNGUARDED, VALID
from lesson import Check, Lesson, Variant

_TOP_K = ("policy.generation.allow_filters=true", "policy.generation.top_k=2")

FILTERS = Lesson(
    letter="a",
    name="Sampling filters in rollouts",
    claim="With top-k in the rollouts alone, sampling and training see different distributions and the policy decays, "
    "whatever the hyper-parameters; filters off, or importance weights that correct for them, are fine.",
    variants=(
        PLAIN,
        Variant(name="top_k", overrides=_TOP_K),
        Variant(
            name="top_k_tis",
            overrides=(
                *_TOP_K, "loss_fn.use_importance_sampling_correction=true",
                "loss_fn.truncated_importance_sampling_type=tis", "loss_fn.truncated_importance_sampling_ratio=2.0",
            ),
        ),
        Variant(
            name="top_k_icepop",
            overrides=(
                *_TOP_K, "loss_fn.use_importance_sampling_correction=true",
                "loss_fn.truncated_importance_sampling_type=icepop", "loss_fn.truncated_importance_sampling_ratio=5.0",
                "loss_fn.truncated_importance_sampling_ratio_min=0.5",
            ),
        ),
    ),
    checks=(
        Check(
            part="failure", says="the mismatch is larger", metric=MISMATCH[0], variant="top_k", other="plain",
            margin=0.02,
        ),
        Check(
            part="failure", says="the held-out accuracy ends lower", metric=ACCURACY[0], variant="top_k",
            other="plain", below=True, margin=FAR,
        ),
        Check(
            part="cure", says="with truncated weights it keeps up", metric=ACCURACY[0], variant="top_k_tis",
            other="plain", margin=-FAR,
        ),
        Check(
            part="cure", says="with IcePop it keeps up", metric=ACCURACY[0], variant="top_k_icepop", other="plain",
            margin=-FAR,
        ),
    ),
    shown=(MISMATCH, ACCURACY, SOLVED),
    scale="the small model puts nearly all its probability on one token, so a filter takes little away, and so few "
    "steps add little of the bias up",
)  # fmt: skip


BALANCE = Lesson(
    letter="b",
    name="Tokens of the two roles",
    claim="Where one role has most of the trained tokens it takes the weights over, and training collapses; a bound on "
    "its share holds the two together.",
    variants=(PLAIN, Variant(name="bounded", overrides=("selfplay.max_token_share=0.6",))),
    checks=(
        Check(
            part="failure", says="the Solver, with nine tenths of the tokens, ends lower without the bound",
            metric=ACCURACY[0], variant="plain", other="bounded", below=True, margin=FAR,
        ),
        Check(
            part="failure", says="fewer proposals are accepted", metric=VALID[0], variant="plain", other="bounded",
            below=True, margin=0.05,
        ),
        Check(
            part="cure", says="the bound gives the Proposer a larger share of the tokens", metric=SHARE[0],
            variant="bounded", other="plain", margin=0.1,
        ),
    ),
    shown=(SHARE, ACCURACY, VALID),
    scale="each role's loss is divided by its own tokens here, so a heavy role has no more weight, only less noise; "
    "and where most Proposer groups agree, a bound leaves hardly a Solver group to learn from",
)  # fmt: skip


RESUMED = Lesson(
    letter="g",
    name="Going on from a bad stretch",
    claim="A run that is resumed from a checkpoint of a biased stretch keeps the bias; started over from the SFT "
    "weights, with the questions it gathered, it does not.",
    variants=(
        Variant(name="biased", overrides=UNGUARDED),
        Variant(name="resumed", goes_on="biased", overrides=("grpo.max_num_steps=32",)),
        Variant(name="restarted", goes_on="biased", restart=True),
        PLAIN,
    ),
    checks=(
        Check(
            part="failure", says="resumed, two hops end lower than started over", metric=TWO_HOPS[0],
            variant="resumed", other="restarted", below=True, margin=FAR_TWO_HOPS,
        ),
        Check(
            part="cure", says="started over, they keep up with a run that was never biased", metric=TWO_HOPS[0],
            variant="restarted", other="plain", margin=-FAR_TWO_HOPS,
        ),
    ),
    shown=(TWO_HOPS, ACCURACY, VALID),
    scale="sixteen steps of bias are undone by sixteen steps of the right mix",
)  # fmt: skip


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
            metric=ACCURACY[0], variant="cleaned", other="plain", margin=-FAR,
        ),
    ),
    shown=(SOLVED, VALID, ACCURACY),
    scale="copies are read as well as originals, and four hits leave room for one of them; only look-ups with many "
    "look-alikes lose the mail they need",
)  # fmt: skip


SELECTED = Lesson(
    letter="i",
    name="What is left out of the update",
    claim="Groups without variance carry no gradient and may go, better still be replaced; leaving out low rewards "
    "takes the contrast away and learning with it.",
    variants=(
        PLAIN,
        Variant(name="low_left_out", script="benchmarks/lessons/low_reward.py"),
        Variant(name="refilled", overrides=("selfplay.refill_rounds=2",)),
    ),
    checks=(
        Check(
            part="failure", says="without the low rewards the held-out accuracy ends lower", metric=ACCURACY[0],
            variant="low_left_out", other="plain", below=True, margin=FAR,
        ),
        Check(
            part="cure", says="refilled, more Solver groups carry a gradient", metric="groups/solver/kept",
            variant="refilled", other="plain", margin=1.0,
        ),
        Check(
            part="cure", says="and the held-out accuracy keeps up", metric=ACCURACY[0], variant="refilled",
            other="plain", margin=-FAR,
        ),
    ),
    shown=(ACCURACY, ("groups/solver/kept", "Solver groups with gradient", "groups a step"), SOLVED),
    scale="what is right alone teaches too: the answers that were right are imitated, and for a while that is enough",
)  # fmt: skip


STALE = Lesson(
    letter="j",
    name="Stale rollouts",
    claim="Rollouts of weights that lag behind are worth using while they lag little; further behind they need a "
    "correction, or a bound on their age.",
    variants=(
        PLAIN,
        Variant(name="lag_1", overrides=("engine.sync_every=2",)),
        Variant(name="lag_4", overrides=("engine.sync_every=5",)),
        Variant(
            name="lag_4_tis",
            overrides=(
                "engine.sync_every=5", "loss_fn.use_importance_sampling_correction=true",
                "loss_fn.truncated_importance_sampling_type=tis", "loss_fn.truncated_importance_sampling_ratio=2.0",
            ),
        ),
        Variant(name="lag_4_bounded", overrides=("engine.sync_every=5", "selfplay.max_age=1")),
    ),
    checks=(
        Check(
            part="failure", says="far behind, the mismatch is larger", metric=MISMATCH[0], variant="lag_4",
            other="plain", margin=0.02,
        ),
        Check(
            part="failure", says="and the held-out accuracy ends lower", metric=ACCURACY[0], variant="lag_4",
            other="plain", below=True, margin=FAR,
        ),
        Check(
            part="cure", says="corrected, it ends higher", metric=ACCURACY[0], variant="lag_4_tis", other="lag_4",
            margin=FAR,
        ),
        Check(
            part="cure", says="one step behind, it keeps up uncorrected", metric=ACCURACY[0], variant="lag_1",
            other="plain", margin=-FAR,
        ),
    ),
    shown=(MISMATCH, ACCURACY, SOLVED),
    scale="weights move little in four steps, and the clip of the ratio holds what is left",
)  # fmt: skip


LOSSES = Lesson(
    letter="k",
    name="Policy losses",
    claim="GSPO and its relatives are steadier than GRPO on long multi-turn episodes.",
    variants=(
        Variant(name="grpo", overrides=BY_STD),
        Variant(name="dr_grpo", overrides=("grpo.normalize_rewards=false", "loss_fn.constant_length=64")),
        Variant(
            name="gspo",
            overrides=(
                *BY_STD,
                "loss_fn.sequence_level_importance_ratios=true",
                "loss_fn.token_level_loss=false",
                "loss_fn.ratio_clip_min=0.02",  # the learning rate is 500 times that of the paper's 3e-4
                "loss_fn.ratio_clip_max=0.03",
            ),
        ),
        Variant(name="sapo", overrides=(*BY_STD, "loss_fn.use_sapo=true")),
        Variant(name="cispo", overrides=(*BY_STD, "loss_fn.use_cispo=true")),
        PLAIN,
    ),
    checks=(
        Check(
            part="failure", says="GRPO ends below GSPO", metric=ACCURACY[0], variant="grpo", other="gspo",
            below=True, margin=FAR,
        ),
        Check(
            part="cure", says="GSPO rises above its start", metric=ACCURACY[0], variant="gspo", margin=FAR,
        ),
    ),
    shown=(ACCURACY, TWO_HOPS, ("update/grad_norm", "Gradient norm", "before clipping")),
    scale="with two or three optimiser steps a batch the ratios hardly leave 1, so the losses differ in how they weigh "
    "tokens and little else",
)  # fmt: skip
