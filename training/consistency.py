"""A judge reads a proposal with the mails that it cites: does the answer follow? (``rewards.judge.proposals``)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from corpus_index.backends.base import IndexUnavailable
from corpus_index.faults import Unavailable
from environments.tools import render_mail
from environments.trajectory import Submission, Trajectory
from rewards.answers import Verdict
from rewards.llm_judge import Claim
from rewards.refusal import Refusal
from training.config import Config
from training.evidence import EvidenceDesk
from training.faults import FaultWatch
from training.proposals import Proposals, undecided


class ClaimJudge(Protocol):
    def follow_all(self, claims: Sequence[Claim]) -> Sequence[Verdict | Unavailable]: ...


def check_claims(
    proposals: Proposals, judge: ClaimJudge, desk: EvidenceDesk, config: Config, faults: FaultWatch
) -> tuple[Proposals, dict[str, float]]:
    """The proposals after the judge, and ``judge/claims``, ``judge/claims_unsure``, ``judge/claims_faults``: how many
    it saw, could not tell and failed. WRONG is a refusal; what it cannot tell or fails to tell is unknown, and masked.

    Raises FaultStop where too many are unjudged.
    """
    trajectories, refusals = list(proposals.trajectories), list(proposals.refusals)
    equal = proposals.submissions()
    claims: list[Claim | IndexUnavailable] = []
    for submission, (first, *_) in equal.items():
        claims.append(_claim(submission, trajectories[first], desk, config))
    verdicts = iter(judge.follow_all([claim for claim in claims if isinstance(claim, Claim)]))
    unsure, causes = 0, list[str]()
    for members, claim in zip(equal.values(), claims, strict=True):
        verdict = next(verdicts) if isinstance(claim, Claim) else claim
        for i in members:
            if verdict is Verdict.WRONG:
                refusals[i] = Refusal.INCONSISTENT
            elif verdict is not Verdict.RIGHT:
                unsure += verdict is Verdict.UNSURE
                causes += [] if verdict is Verdict.UNSURE else [str(verdict)]
                trajectories[i], refusals[i] = undecided(trajectories[i], f"the judge could not tell: {verdict}")
    asked = sum(map(len, equal.values()))
    faults.unjudged(causes, answers=asked)
    counts = {"claims": asked, "claims_unsure": unsure, "claims_faults": len(causes)}
    checked = replace(proposals, trajectories=trajectories, refusals=refusals)
    return checked, {f"judge/{name}": float(count) for name, count in counts.items()}


def _claim(
    submission: Submission, proposal: Trajectory, desk: EvidenceDesk, config: Config
) -> Claim | IndexUnavailable:
    read = desk.reader(proposal.task.scope)
    try:
        mails = [mail for mail_id in submission.evidence if (mail := read(mail_id)) is not None]
    except IndexUnavailable as fault:
        return fault
    texts = tuple(render_mail(mail, config.tools) for mail in mails)
    return Claim(submission.question, submission.answer, texts)
