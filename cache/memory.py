"""The memory tier: bytes by key, least recently used first to go."""

from __future__ import annotations

import threading
from collections import OrderedDict

from cache.contracts import Counters, Key


class MemoryTier:
    """``Tier`` in this process.

    Args:
        max_bytes: budget over all values; 0 keeps nothing.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: OrderedDict[Key, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._counters = Counters()

    @property
    def name(self) -> str:
        """``memory``."""
        return "memory"

    @property
    def counters(self) -> Counters:
        """Live counters."""
        return self._counters

    def get(self, key: Key) -> bytes | memoryview | None:
        """The value, or ``None``."""
        with self._lock:
            value = self._values.get(key)
            if value is None:
                self._counters.misses += 1
                return None
            self._values.move_to_end(key)
            self._counters.hits += 1
            return value

    def put(self, key: Key, value: bytes | memoryview) -> None:
        """Keep a copy if it fits the budget; the least recently used go first."""
        value = bytes(value)
        with self._lock:
            self._drop(key)
            if not self._max_bytes or len(value) > self._max_bytes:
                return
            while self._counters.bytes + len(value) > self._max_bytes:
                oldest = next(iter(self._values))
                self._drop(oldest)
                self._counters.evictions += 1
            self._values[key] = value
            self._counters.entries += 1
            self._counters.bytes += len(value)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self._counters.entries = self._counters.bytes = 0

    def close(self) -> None:
        """Forget everything."""
        self.clear()

    def _drop(self, key: Key) -> None:
        value = self._values.pop(key, None)
        if value is not None:
            self._counters.entries -= 1
            self._counters.bytes -= len(value)
