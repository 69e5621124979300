"""Replies by the hash of what was asked, so that no question is paid for twice and a resumed run hears the same."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from pathlib import Path

from rewards.replies import EndpointFault, FaultReason


class ReplyCache:
    """A SQLite file, or memory where ``path`` is None. Threads may share it, and so may processes."""

    def __init__(self, path: Path | None = None) -> None:
        self._lock = threading.Lock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._store = sqlite3.connect(path or ":memory:", check_same_thread=False, timeout=60.0)
            with self._store:
                self._store.execute("CREATE TABLE IF NOT EXISTS replies (asked TEXT PRIMARY KEY, reply TEXT NOT NULL)")
        except sqlite3.Error as error:
            raise ValueError(
                f"the cache of replies {path} cannot be used: {error}. Name another file, or delete this one"
            ) from error

    def get(self, asked: str) -> str | None:
        with self._lock:
            try:
                row = self._store.execute("SELECT reply FROM replies WHERE asked = ?", (_hash(asked),)).fetchone()
            except sqlite3.Error as error:
                raise EndpointFault(FaultReason.CACHE, f"cannot be read: {error}") from error
        return None if row is None else str(row[0])

    def put(self, asked: str, reply: str) -> None:
        """The first reply stays: whoever asked at the same time reads it from then on."""
        with self._lock:
            try:
                with self._store:
                    self._store.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (_hash(asked), reply))
            except sqlite3.Error as error:
                raise EndpointFault(FaultReason.CACHE, f"cannot be written: {error}") from error

    def close(self) -> None:
        self._store.close()


def _hash(asked: str) -> str:
    return hashlib.sha256(asked.encode("utf-8", errors="surrogatepass")).hexdigest()
