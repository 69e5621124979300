"""One of many equal episodes is enough: exact and near duplicates of what was done and said."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from zlib import crc32

from corpus_index.dedup import Fingerprint, NearDuplicates, shingle_hashes
from corpus_index.folding import words
from environments.chat_rows import ChatRow
from training.config_trajectories import DeduplicateConfig
from training.sft_data.filters import StageOutcome, sift
from training.sft_data.thoughts import calls_of, thoughts_of


def deduplicate(rows: Sequence[ChatRow], settings: DeduplicateConfig) -> StageOutcome:
    """exact: the question and all calls are those of an earlier row. near: the same answer from the same mails, in
    nearly the same turns. per_question: the question has enough episodes. The earlier row stays."""
    near = NearDuplicates(settings.threshold, settings.permutations)
    seen: set[bytes] = set()
    asked: Counter[tuple[str, ...]] = Counter()

    def reason(row: ChatRow) -> str:
        question = _question(row)
        mark = fingerprint(row)
        if mark.exact in seen:
            return "exact"
        if asked[question] >= settings.per_question:
            return "per_question"
        if near.seen(mark):
            return "near"
        seen.add(mark.exact)
        asked[question] += 1
        return ""

    return sift(rows, reason)


def fingerprint(row: ChatRow) -> Fingerprint:
    """``facts`` are the answer and its mails: where they differ, episodes teach different things however alike."""
    calls = calls_of(row)
    exact = "\n".join((row.task.role, *_question(row), *calls)).encode("utf-8", "replace")
    turns = "\n".join(f"{thought}\n{call}" for thought, call in zip(thoughts_of(row), calls, strict=True))
    folded = b" ".join(turns.lower().encode("utf-8", "replace").split())
    key = row.outline().submission
    facts = "" if key is None else " ".join((*words(key.answer), *sorted(key.evidence)))
    return Fingerprint(
        exact=hashlib.blake2b(exact, digest_size=16).digest(),
        shingles=shingle_hashes(folded).tobytes(),
        facts=crc32(f"{row.task.role} {facts}".encode("utf-8", "replace")),
    )


def _question(row: ChatRow) -> tuple[str, ...]:
    """The words that are asked: a Proposer's are in what it submits."""
    submission = row.outline().submission
    return words(row.task.question or (submission.question if submission is not None else ""))
