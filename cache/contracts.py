"""Tiers of batches in front of the log. Losing a tier costs time, never a sample.

Keys are content positions, so an entry is never wrong: the topic's *id* (not its name: a topic made again has the same
offsets and other bytes), partition, offset, and the fingerprint of what was computed from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar


class Key(NamedTuple):
    """Content position of an entry."""

    topic_id: str
    partition: int
    offset: int
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class RedisConfig:
    """Settings of the Redis tier.

    Args:
        url: ``redis://[[user]:password@]host:port/db``, ``rediss://`` or ``unix://``; never printed with its password.
        max_bytes: budget of one version of an experiment, over all its trainers.
        ttl_s: an entry goes so long after it was put.
        deadline_s: of one call; what takes longer counts as missing.
    """

    url: str
    max_bytes: int = 1024**3
    ttl_s: float = 24 * 3600.0
    deadline_s: float = 0.2


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of the cache.

    Args:
        memory_bytes: budget of the memory tier of one process.
        prefetch_bytes: decoded batches read ahead of the trainer.
        redis: the tier that is shared between processes; ``None``: there is none.
    """

    memory_bytes: int = 64 * 1024 * 1024
    prefetch_bytes: int = 64 * 1024 * 1024
    redis: RedisConfig | None = None


@dataclass(slots=True)
class Counters:
    """Of one tier; they only rise, except ``entries`` and ``bytes``. ``seconds``: spent in its calls, over all threads."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    errors: int = 0
    entries: int = 0
    bytes: int = 0
    seconds: float = 0.0


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

    def replace(self, key: Key, value: bytes | memoryview) -> None:
        """Put a value into every tier: what one of them had was damaged."""

    def counters(self) -> dict[str, Counters]:
        """By tier's name."""

    def close(self) -> None:
        """Close the tiers."""
