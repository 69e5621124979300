"""What another machine cannot do now: the one kind of failure that is asked again, and never the policy's fault."""

from __future__ import annotations


class Unavailable(RuntimeError):
    """A service cannot answer: retry (``corpus_index.retries``), then mask what needed the answer.

    ``passing``: asking again may help. ``wait_seconds``: before that the service asks for a pause of so long.
    """

    def __init__(self, message: str, *, passing: bool = True, wait_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.passing = passing
        self.wait_seconds = wait_seconds
