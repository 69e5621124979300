"""Lessons on the game: what the roles hand in and what they are paid for."""

from __future__ import annotations

from common import ACCURACY, BY_STD, DISTINCT, FAR, FAR_TWO_HOPS, PLAIN, SOLVED, TRUE, TWO_HOPS, UNGUARDED, VALID
from lesson import Check, Lesson, Variant

_FAILURES = (*BY_STD, *UNGUARDED[3:])
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
            variant="apart", other="plain", below=True, margin=FAR,
        ),
        Check(
            part="cure", says="with mirrored outputs nearly every episode hands in",
            metric="episode/solver/submitted_rate", variant="plain", other="apart", margin=-0.02,
        ),
    ),
    shown=(ACCURACY, ("episode/solver/submitted_rate", "Episodes that hand in, Solver", "share"), VALID),
    scale="the SFT start teaches either form by heart, and in so few steps neither is forgotten",
    confound="the small model's tokenizer has the mirrored submission as two tokens and spells the other one letter by "
    "letter, so that its start hardly hands in at all (after 200 SFT steps, too, one hop is at 15 % in place of 94 %)",
)  # fmt: skip


VAGUE = Lesson(
    letter="d",
    name="Lucky answers",
    claim="Questions that are answered by luck look like questions of middling difficulty and are paid most; pay for "
    "grounded answers alone cures it.",
    variants=(
        Variant(name="by_success", overrides=UNGUARDED),
        Variant(name="by_outcomes", overrides=(*UNGUARDED, "rewards.proposer.outcomes.enabled=true")),
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
        Variant(name="milked", overrides=UNGUARDED[1:]),
        Variant(name="diverse", overrides=(*UNGUARDED[1:], "rewards.proposer.diversity=0.3")),
        Variant(name="spread", overrides=UNGUARDED[3:]),
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
            variant="spread", other="milked", margin=FAR_TWO_HOPS,
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


SHAPES = Lesson(
    letter="l",
    name="Success or regret",
    claim="Pay for what search adds (right with the evidence told, minus right without) makes better questions than "
    "pay for middling success.",
    variants=(
        Variant(name="success", overrides=UNGUARDED[3:]),
        Variant(
            name="regret",
            overrides=(*UNGUARDED[3:], "rewards.proposer.shape=regret", "selfplay.hint_generations=4"),
        ),
    ),
    checks=(
        Check(
            part="failure", says="paid by success, fewer questions are true", metric=TRUE[0], variant="success",
            other="regret", below=True, margin=0.03,
        ),
        Check(
            part="cure", says="paid by regret, the held-out accuracy keeps up", metric=ACCURACY[0], variant="regret",
            other="success", margin=-FAR,
        ),
    ),
    shown=(TRUE, ACCURACY, ("proposals/p_hat", "Right without a hint", "share of Solvers")),
    scale="the small model was never shown a prompt with evidence in it, so a hint helps it little and regret is noise",
)  # fmt: skip
