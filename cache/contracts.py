"""Tiers of batches in front of the log. Losing a tier costs time, never a sample.

Keys are content positions, so an entry is never wrong: the topic's *id* (not its name: a topic made again has the same
offsets and other bytes), partition, offset, and the fingerprint of what was computed from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar


class Key(NamedTuple):
    """Content position of an entry."""

    topic_id: str
    partition: int
    offset: int
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of the cache.

    Args:
        memory_bytes: budget of the memory tier of one process.
        prefetch_bytes: decoded batches read ahead of the trainer.
    """

    memory_bytes: int = 64 * 1024 * 1024
    prefetch_bytes: int = 64 * 1024 * 1024


@dataclass(slots=True)
class Counters:
    """Of one tier; they only rise, except ``entries`` and ``bytes``."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    errors: int = 0
    entries: int = 0
    bytes: int = 0
    seconds: float = field(default=0.0)


class Tier(Protocol):
    """A store of byte strings by key with a budget. All calls are thread safe and never raise: a tier that fails counts an
    error and behaves as empty."""

    @property
    def name(self) -> str:
        """Shown in counters: ``memory``, ``redis``."""
        ...

    @property
    def counters(self) -> Counters:
        """Live counters."""
        ...

    def get(self, key: Key) -> bytes | memoryview | None:
        """The bytes, or ``None``. The view stays valid after eviction."""

    def put(self, key: Key, value: bytes | memoryview) -> None:
        """Keep it if it fits the budget; older entries go first. A value above the budget is not kept."""

    def clear(self) -> None:
        """Forget everything."""

    def close(self) -> None:
        """Release. May be called twice."""


T = TypeVar("T")


class Cache(Protocol):
    """Tiers in front of a loader."""

    def get_or_load(self, key: Key, loader: Callable[[], bytes | memoryview]) -> bytes | memoryview:
        """The value from the first tier that has it (and fills the tiers before), else ``loader()``. Concurrent calls for
        one key run the loader once; its exception reaches all of them and nothing is kept."""

    def counters(self) -> dict[str, Counters]:
        """By tier's name."""

    def close(self) -> None:
        """Close the tiers."""
