"""As much of Ray as an environment needs, in one process: actors on threads; what goes in and out is a pickled copy."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


def _copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


class _Method:
    def __init__(self, pool: ThreadPoolExecutor, call: Callable[..., Any]) -> None:
        self._pool = pool
        self._call = call

    def remote(self, *args: Any, **kwargs: Any) -> Future[Any]:
        args, kwargs = _copied((args, kwargs))
        return self._pool.submit(lambda: _copied(self._call(*args, **kwargs)))


class ActorHandle:
    def __init__(self, made: Any, concurrency: int) -> None:
        self._made = made
        self._pool = ThreadPoolExecutor(concurrency)

    def __getattr__(self, name: str) -> _Method:
        return _Method(self._pool, getattr(self._made, name))


class ActorClass:
    def __init__(self, cls: type[Any], options: dict[str, Any]) -> None:
        self._cls = cls
        self._options = options

    def options(self, **options: Any) -> ActorClass:
        return ActorClass(self._cls, {**self._options, **options})

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle:
        args, kwargs = _copied((args, kwargs))
        return ActorHandle(self._cls(*args, **kwargs), self._options.get("max_concurrency", 1))


def remote(*args: Any, **options: Any) -> Any:
    if args:
        return ActorClass(args[0], {})
    return lambda cls: ActorClass(cls, options)


def get(refs: Future[Any] | Iterable[Future[Any]]) -> Any:
    return refs.result() if isinstance(refs, Future) else [ref.result() for ref in refs]


def put(value: Any) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(_copied(value))
    return done
