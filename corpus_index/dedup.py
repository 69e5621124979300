"""Exact and near duplicates: fingerprints that are cheap to make in a worker, and the index that compares them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from rensa import RMinHash, RMinHashLSH  # pyright: ignore[reportAttributeAccessIssue]  # compiled, without stubs

from corpus_index.document import Document
from corpus_index.quoting import bare_subject
from corpus_index.sources.mail import split_head

SHINGLE_WORDS = 5
# Sketch size for the exact comparison. A set of up to this many shingles (1,000 words; 99 of 100 mails) is compared
# whole; of a longer one the smallest hashes are kept, which estimates the same ratio to within about 2 points.
_KEPT_SHINGLES = 1024
# Bulletins from one template can fill a bucket; past this many candidates the rest are as good as these.
_MAX_CANDIDATES = 64
_SEED = 42
_SPACE = 0x20
_DIGITS_ONLY = bytes(code if 0x30 <= code <= 0x39 else _SPACE for code in range(256))
_MAX_TEXT = 1 << 18
_BASE = 0x5851F42D4C957F2D  # odd, so that every power has an inverse modulo 2^64


def _powers(base: int) -> NDArray[np.uint64]:
    """base^0, base^1, ... modulo 2^64."""
    steps = np.full(_MAX_TEXT + 1, base, np.uint64)
    steps[0] = 1
    return np.multiply.accumulate(steps)


_POWERS = _powers(_BASE)
_INVERSES = _powers(pow(_BASE, -1, 2**64))


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """``exact``: 16 bytes. ``shingles``: sorted distinct uint32 hashes of runs of 5 words, as bytes.

    ``shingles`` is empty for fewer than 5 words. ``facts``: hash of the bare subject and of every number in the body.
    """

    exact: bytes
    shingles: bytes
    facts: int


def fingerprint(document: Document) -> Fingerprint:
    """Of sender, date (UTC), subject and body, with case and white space folded. The same in every process."""
    folded = b" ".join(document.body.lower().encode("utf-8", "replace").split())
    date = document.date.isoformat() if document.date else ""
    head = f"{document.sender}\n{date}\n{' '.join(document.subject.lower().split())}\n".encode("utf-8", "replace")
    exact = hashlib.blake2b(head + folded, digest_size=16).digest()
    numbers = b" ".join(folded.translate(_DIGITS_ONLY).split())
    facts = crc32(bare_subject(document.subject).encode("utf-8", "replace") + b"\n" + numbers)
    return Fingerprint(exact, shingle_hashes(folded).tobytes(), facts)


# What a mail store writes anew for each copy of a mail.
_PER_COPY = re.compile(
    rb"^(?:message-id|x-folder|x-origin)[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*", re.IGNORECASE | re.MULTILINE
)


def raw_key(data: bytes) -> bytes:
    """16 bytes; equal for two raw messages that are the same bytes bar Message-ID and folder.

    Such twins have equal fingerprints, so the second need not be parsed to be known as a duplicate.
    """
    head, body = split_head(data)
    return hashlib.blake2b(_PER_COPY.sub(b"", head) + b"\n\n" + body, digest_size=16).digest()


def shingle_hashes(folded: bytes) -> NDArray[np.uint32]:
    """Sorted distinct 32-bit hashes of every run of 5 words of a text with single spaces; empty for fewer than 5 words.

    A polynomial hash modulo 2^64 over the whole text gives that of every run by one subtraction, so no word is ever
    touched on its own: a loop over words would take longer than parsing the mail. Of a very long text only the first
    256 kB count.
    """
    text = np.frombuffer(folded[:_MAX_TEXT], np.uint8)
    spaces = np.flatnonzero(text == _SPACE)
    if len(spaces) < SHINGLE_WORDS - 1:
        return np.empty(0, np.uint32)
    sums = np.zeros(len(text) + 1, np.uint64)
    np.cumsum(text * _POWERS[: len(text)], out=sums[1:])
    starts = np.empty(len(spaces) - SHINGLE_WORDS + 2, np.intp)
    starts[0] = 0
    starts[1:] = spaces[: len(starts) - 1] + 1
    ends = np.empty_like(starts)
    ends[:-1] = spaces[SHINGLE_WORDS - 1 :]
    ends[-1] = len(text)
    hashes = (sums[ends] - sums[starts]) * _INVERSES[starts]
    hashes ^= hashes >> np.uint64(32)
    hashes *= np.uint64(0x9E3779B97F4A7C15)
    short = (hashes >> np.uint64(32)).astype(np.uint32)
    short.sort()
    first = np.empty(len(short), np.bool_)
    first[0] = True
    np.not_equal(short[1:], short[:-1], out=first[1:])
    return short[first]


def jaccard(left: NDArray[np.uint32], right: NDArray[np.uint32]) -> float:
    """Shared over all of two sorted distinct hash arrays; of two sketches, over the part that both cover."""
    full = [side[-1] for side in (left, right) if len(side) >= _KEPT_SHINGLES]
    if full:
        limit = min(full)
        left, right = left[left <= limit], right[right <= limit]
    if not len(left) or not len(right):
        return 0.0
    shared = len(np.intersect1d(left, right, assume_unique=True))
    return shared / (len(left) + len(right) - shared)


class NearDuplicates:
    """MinHash LSH over shingles, each candidate checked by the Jaccard ratio of its shingles.

    ``threshold``: 0 to 1. ``permutations``: length of a MinHash signature, a power of two. Memory: about 1.5 kB a kept
    mail.
    """

    def __init__(self, threshold: float, permutations: int) -> None:
        self._threshold = threshold
        self._permutations = permutations
        self._lsh = RMinHashLSH(
            threshold=threshold, num_perm=permutations, num_bands=bands_for(threshold, permutations)
        )
        self._kept: list[tuple[bytes, int]] = []

    def seen(self, mark: Fingerprint) -> bool:
        """True where a kept mail is a near duplicate of this one; otherwise this one is kept from now on.

        Mails that differ in a number, or in their subject bar Re and Fw, are not duplicates however alike: a changed
        time, price or room is what a later question asks for.
        """
        if not mark.shingles:
            return False
        shingles = np.frombuffer(mark.shingles, np.uint32)
        sketch = RMinHash(num_perm=self._permutations, seed=_SEED)
        sketch.update(cast("list[bytes]", shingles.view("S4").tolist()))
        small = shingles[:_KEPT_SHINGLES]
        candidates = [key for key in self._lsh.query(sketch) if self._kept[key][1] == mark.facts]
        for key in sorted(candidates)[:_MAX_CANDIDATES]:
            if jaccard(np.frombuffer(self._kept[key][0], np.uint32), small) >= self._threshold:
                return True
        self._lsh.insert(len(self._kept), sketch)
        self._kept.append((small.tobytes(), mark.facts))
        return False


def bands_for(threshold: float, permutations: int) -> int:
    """Fewest bands that make a pair at the threshold a candidate with a chance of at least 0.9.

    With b bands of r rows a pair of similarity s is a candidate with chance ``1 - (1 - s^r)^b``.
    """
    for bands in (2**power for power in range(permutations.bit_length())):
        if permutations % bands == 0 and 1 - (1 - threshold ** (permutations // bands)) ** bands >= 0.9:
            return bands
    return permutations
