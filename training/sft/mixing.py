"""Which samples a step trains on: two sets by token share, and inside a set its languages by theirs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from training.config_sft import SftConfig
from training.sft.samples import SETS, Sample


def passes(samples: Sequence[Sample], seed: int) -> Iterator[Sample]:
    """Without end: every sample once before any comes again, each pass in an order of its own."""
    for number in count():
        yield from random.Random(f"{seed}/pass {number}").sample(samples, len(samples))


def mixed(streams: Mapping[str, Iterator[Sample]], shares: Mapping[str, float]) -> Iterator[Sample]:
    """The next sample comes from the stream that is furthest below its share of the trained tokens so far, so that the
    shares hold at every moment to within a sample. Shares of 0 are left out."""
    wanted = {name: share for name, share in shares.items() if share > 0}
    given = dict.fromkeys(wanted, 0)
    while True:
        name = min(wanted, key=lambda name: (given[name] / wanted[name], name))
        sample = next(streams[name])
        given[name] += sample.trajectory.sampled_tokens
        yield sample


def dual_mix(samples: Sequence[Sample], config: SftConfig) -> Iterator[Sample]:
    """The stage's endless stream. It follows from the samples and the config alone, so a resumed run skips what was
    trained. Raises ValueError where a set or one of its languages is wanted and has no samples."""
    shares = {"general": config.general.share, "agentic": 1 - config.general.share}
    languages = {"general": config.general.languages, "agentic": config.agentic.languages}
    streams = {
        name: _by_language(name, [sample for sample in samples if sample.source == name], languages[name], config.seed)
        for name in SETS
        if shares[name] > 0
    }
    return mixed(streams, shares)


def _by_language(name: str, samples: Sequence[Sample], shares: Mapping[str, float], seed: int) -> Iterator[Sample]:
    if not shares:
        if not samples:
            raise ValueError(f"sft: the {name} set has no samples to train on; give it some, or the other all tokens")
        return passes(samples, seed)
    pools = {language: [sample for sample in samples if sample.language == language] for language in shares}
    missing = [language for language, pool in pools.items() if not pool]
    if missing:
        found = ", ".join(sorted({repr(sample.language) for sample in samples})) or "no rows"
        raise ValueError(f"sft.{name}.languages wants {', '.join(missing)} and the data has {found}")
    return mixed({language: passes(pool, seed) for language, pool in pools.items()}, shares)


def next_batch(stream: Iterator[Sample], config: SftConfig) -> list[Sample]:
    """``trajectories_per_step`` samples, or as many as fill ``tokens_per_step``, one at least."""
    if config.tokens_per_step is None:
        return [next(stream) for _ in range(config.trajectories_per_step)]
    batch: list[Sample] = []
    held = 0
    while held < config.tokens_per_step:
        batch.append(next(stream))
        held += len(batch[-1].trajectory.token_ids)
    return batch
