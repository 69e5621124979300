"""Asking a service that may be away (a search index, a chat endpoint): again after growing pauses, until a deadline.

The one place that retries: a client makes one try a call and says whether another may help (``passing``).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from corpus_index.backends.base import IndexUnavailable
from corpus_index.faults import Unavailable

T = TypeVar("T")


class RetrySettings(BaseModel):
    """How long a call waits for a service that cannot answer. All times are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    retries: Annotated[int, Field(ge=0)] = 10  # with the pauses below about as many as the deadline allows
    backoff_seconds: Annotated[float, Field(ge=0)] = 0.2  # doubles with every retry, times a random 0.5 to 1.5
    longest_backoff_seconds: Annotated[float, Field(ge=0)] = 3.0  # where the doubling ends: a crowded index needs many
    deadline_seconds: Annotated[float, Field(gt=0)] = 20.0  # no retry starts after it


class Backoff:
    """One call's retries. The jitter keeps episodes that failed together from coming back together."""

    def __init__(self, settings: RetrySettings) -> None:
        self._settings = settings
        self._deadline = time.monotonic() + settings.deadline_seconds
        self._failed = 0

    def left(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(self._deadline - time.monotonic(), 0.0)

    def pause(self, failure: Unavailable) -> float | None:
        """Seconds to wait before the next try, None when there is none."""
        doubled = self._settings.backoff_seconds * 2**self._failed
        pause = min(doubled, self._settings.longest_backoff_seconds) * random.uniform(0.5, 1.5)
        pause = max(pause, failure.wait_seconds)
        self._failed += 1
        again = failure.passing and self._failed <= self._settings.retries and pause <= self.left()
        return pause if again else None


def retried(ask: Callable[[], T], settings: RetrySettings) -> T:
    """``ask()``, again while it raises an Unavailable that may pass. The last one is raised.

    A call that hangs is not cut short here: its own time-out ends it.
    """
    backoff = Backoff(settings)
    while True:
        try:
            return ask()
        except Unavailable as error:
            pause = backoff.pause(error)
            if pause is None:
                raise
        time.sleep(pause)


async def retried_async(ask: Callable[[], Awaitable[T]], settings: RetrySettings) -> T:
    """``retried`` without blocking the loop; a call that has not answered by the deadline is dropped and counts as
    unavailable."""
    backoff = Backoff(settings)
    before = ""
    while True:
        try:
            async with asyncio.timeout(backoff.left()):
                return await ask()
        except TimeoutError:
            seconds = f"{settings.deadline_seconds:g} s (tools.deadline_seconds)"
            raise IndexUnavailable(f"no answer within {seconds}{before}") from None
        except Unavailable as error:
            pause = backoff.pause(error)
            if pause is None:
                raise
            before = f"; before that: {error}"
        await asyncio.sleep(pause)
