"""Reading one part ahead, so that waiting for another machine and packing what came overlap."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Iterator[T], Generic[T]):
    """What ``inner`` gives, in its order, errors too, each made in a thread while the one before is used.

    One that is dropped halfway finishes the part at hand in its thread, and then ``inner`` goes with it. At most one part waits.
    """

    def __init__(self, inner: Iterator[T], pool: ThreadPoolExecutor) -> None:
        self._inner, self._pool = inner, pool
        self._next: Future[list[T]] | None = pool.submit(self._take)

    def __next__(self) -> T:
        """Waits for the part. Raises what ``inner`` raises, at the same place; after that it is at its end."""
        if self._next is None:
            raise StopIteration
        coming, self._next = self._next, None
        found = coming.result()
        if not found:
            raise StopIteration
        self._next = self._pool.submit(self._take)
        return found[0]

    def _take(self) -> list[T]:
        """One, or none at the end: a future cannot carry ``StopIteration``."""
        return list(itertools.islice(self._inner, 1))
