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
    "sft_apart": Variant(
        name="sft_apart", start="", shared=True,
        overrides=("sft.max_num_steps=40", "grpo.max_num_steps=0", "env.outputs=apart"),
    ),
}  # fmt: skip

_BY_STD = ("grpo.normalize_by=std",)  # advantages by mean need pay from 0 up
_UNGUARDED = (
    "selfplay.hops={1: 1.0}",
    "selfplay.spread_questions=false",
    "selfplay.pool_share=0.0",
    "selfplay.role_weights.proposer=1.0",
    "selfplay.proposer_prompts_per_step=8",
    "selfplay.proposer_generations=8",
)
"""A Proposer that moves fast, and Solvers that get what it asks as it comes: a hack has free way."""
_FAILURES = (*_BY_STD, *_UNGUARDED[3:])
"""Groups of 8 proposals, in which failures are contrast."""

OUTPUTS = Lesson(
    letter="c",
    name="Roles with unlike outputs",
    claim="Where the roles hand in by different tools and fields, what one learns does not help the other, and formats "
    "collapse; mirrored outputs share it.",
    variants=(Variant(name="apart", start="sft_apart", overrides=("env.outputs=apart",)), PLAIN),
    checks=(
        Check(
            part="failure", says="with unlike outputs the held-out accuracy ends lower", metric=ACCURACY[0],
            variant="apart", other="plain", below=True, margin=0.05,
        ),
        Check(
            part="cure", says="with mirrored outputs nearly every episode hands in",
            metric="episode/solver/submitted_rate", variant="plain", other="apart", margin=-0.02,
        ),
    ),
    shown=(ACCURACY, ("episode/solver/submitted_rate", "Episodes that hand in, Solver", "share"), VALID),
    scale="the SFT start teaches either form by heart, and in so few steps neither is forgotten",
)  # fmt: skip

VAGUE = Lesson(
    letter="d",
    name="Lucky answers",
    claim="Questions that are answered by luck look like questions of middling difficulty and are paid most; pay for "
    "grounded answers alone cures it.",
    variants=(
        Variant(name="by_success", overrides=_UNGUARDED),
        Variant(name="by_outcomes", overrides=(*_UNGUARDED, "rewards.proposer.outcomes.enabled=true")),
    ),
    checks=(
        Check(
            part="failure", says="paid by success, true questions become fewer", metric=TRUE[0], variant="by_success",
            below=True, margin=0.05,
        ),
        Check(
            part="cure", says="paid by outcomes, more of them are true", metric=TRUE[0], variant="by_outcomes",
            other="by_success", margin=0.05,
        ),
    ),
    shown=(TRUE, ("proposals/p_hat", "What the pay is taken of", "share of right Solvers"), VALID),
    scale="the company's questions have one answer each, and the small Proposer asks in the wordings that it was "
    "taught, so it finds no vague ones",
)  # fmt: skip

PATTERN = Lesson(
    letter="e",
    name="One pattern milked",
    claim="The Proposer finds one sort of question that pays and asks it for ever; pay for diversity, and Solver "
    "groups spread over patterns, keep the sorts alive.",
    variants=(
        Variant(name="milked", overrides=_UNGUARDED[1:]),
        Variant(name="diverse", overrides=(*_UNGUARDED[1:], "rewards.proposer.diversity=0.3")),
        Variant(name="spread", overrides=_UNGUARDED[3:]),
    ),
    checks=(
        Check(
            part="failure", says="different questions become fewer", metric=DISTINCT[0], variant="milked", below=True,
            margin=0.05,
        ),
        Check(
            part="cure", says="with diversity paid there are more", metric=DISTINCT[0], variant="diverse",
            other="milked", margin=0.05,
        ),
        Check(
            part="cure", says="with groups spread over patterns two hops are learned better", metric=TWO_HOPS[0],
            variant="spread", other="milked", margin=0.03,
        ),
    ),
    shown=(DISTINCT, TWO_HOPS, TRUE),
    scale="each prompt has a seed mail of its own, which keeps questions apart for as long as the run lasts",
)  # fmt: skip

FAILED = Lesson(
    letter="f",
    name="What failures are paid",
    claim="Refused questions that are punished start a spiral to silence; left out, they teach nothing; any pay for "
    "questions that nobody solves is hacked. They stay in their group, at 0.",
    variants=(
        Variant(name="at_0", overrides=_FAILURES),
        Variant(name="punished", overrides=(*_FAILURES, "rewards.proposer.refused=-0.1")),
        Variant(name="left_out", overrides=(*_FAILURES, "rewards.proposer.refused=null")),
        Variant(
            name="unsolved_paid",
            overrides=(
                *_FAILURES,
                "rewards.proposer.zero_if_unsolved=false",
                "rewards.proposer.shape=one_minus_p",
            ),
        ),
    ),
    checks=(
        Check(
            part="failure", says="left out, fewer questions are accepted", metric=VALID[0], variant="left_out",
            other="at_0", below=True, margin=0.05,
        ),
        Check(
            part="failure", says="punished, fewer questions are accepted", metric=VALID[0], variant="punished",
            other="at_0", below=True, margin=0.05,
        ),
        Check(
            part="failure", says="with pay for the unsolved, fewer are solved", metric=SOLVED[0],
            variant="unsolved_paid", other="at_0", below=True, margin=0.1,
        ),
        Check(part="cure", says="at 0, more and more are accepted", metric=VALID[0], variant="at_0", margin=0.0),
    ),
    shown=(VALID, SOLVED, TRUE),
    scale="advantages are taken against the group, so a constant below 0 only widens the gap between refused and "
    "accepted; the published spiral had one proposal a prompt and no group",
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

SHAPES = Lesson(
    letter="l",
    name="Success or regret",
    claim="Pay for what search adds (right with the evidence told, minus right without) makes better questions than "
    "pay for middling success.",
    variants=(
        Variant(name="success", overrides=_UNGUARDED[3:]),
        Variant(
            name="regret",
            overrides=(*_UNGUARDED[3:], "rewards.proposer.shape=regret", "selfplay.hint_generations=4"),
        ),
    ),
    checks=(
        Check(
            part="failure", says="paid by success, fewer questions are true", metric=TRUE[0], variant="success",
            other="regret", below=True, margin=0.03,
        ),
        Check(
            part="cure", says="paid by regret, the held-out accuracy keeps up", metric=ACCURACY[0], variant="regret",
            other="success", margin=-0.03,
        ),
    ),
    shown=(TRUE, ACCURACY, ("proposals/p_hat", "Right without a hint", "share of Solvers")),
    scale="the small model was never shown a prompt with evidence in it, so a hint helps it little and regret is noise",
)  # fmt: skip

LESSONS = {
    lesson.letter: lesson for lesson in (OUTPUTS, VAGUE, PATTERN, FAILED, DUPLICATES, LOSSES, SHAPES)
}  # fmt: skip
