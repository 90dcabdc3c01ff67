"""A tier of files against the suite: it is not in this process, and its store can fail. Order, of all that keep it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cache.contracts import Counters, Key, Tier
from cache.memory import MemoryTier
from tests.contracts.tier_conformance import MakeTier, TierConformance
from tests.contracts.tier_failing import BreakTier, TierFailing, TierOrder


class FolderTier:
    """A file an entry, the least recently used goes first."""

    name = "folder"

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder, self._max_bytes = folder, max_bytes
        self.counters = Counters()
        self._sizes: dict[str, int] = {}
        self._lock = threading.Lock()
        folder.mkdir()

    def get(self, key: Key) -> bytes | None:
        name, value = repr(tuple(key)), None
        with self._lock:
            if name in self._sizes:
                self._sizes[name] = self._sizes.pop(name)
                try:
                    value = (self.folder / name).read_bytes()
                except OSError:
                    self.counters.errors += 1
            self.counters.hits += value is not None
            self.counters.misses += value is None
        return value

    def put(self, key: Key, value: bytes | memoryview) -> None:
        name, data = repr(tuple(key)), bytes(value)
        if len(data) > self._max_bytes:
            return
        with self._lock:
            self._sizes.pop(name, None)
            while sum(self._sizes.values()) + len(data) > self._max_bytes:
                del self._sizes[next(iter(self._sizes))]
                self.counters.evictions += 1
            try:
                (self.folder / name).write_bytes(data)
                self._sizes[name] = len(data)
            except OSError:
                self.counters.errors += 1
            self._count()

    def clear(self) -> None:
        with self._lock:
            self._sizes.clear()
            self._count()

    def close(self) -> None:
        self.clear()

    def _count(self) -> None:
        self.counters.entries, self.counters.bytes = len(self._sizes), sum(self._sizes.values())


class TestFolderTier(TierConformance, TierFailing, TierOrder):
    @pytest.fixture
    def make_tier(self, tmp_path: Path) -> Iterator[MakeTier]:
        made: list[Tier] = []

        def make(max_bytes: int) -> Tier:
            made.append(FolderTier(tmp_path / f"tier{len(made)}", max_bytes))
            return made[-1]

        yield make
        for tier in made:
            tier.close()

    @pytest.fixture
    def broken(self) -> BreakTier:
        def break_(tier: Tier) -> None:
            assert isinstance(tier, FolderTier)
            shutil.rmtree(tier.folder)

        return break_


class TestOrderInMemory(TierOrder):
    @pytest.fixture
    def make_tier(self) -> MakeTier:
        return MemoryTier


def test_views_of_long_items_and_values_too_large_in_memory() -> None:
    tier, here = MemoryTier(100), Key("t", 0, 0)
    tier.put(here, memoryview(bytes(160)).cast("q"))
    assert tier.get(here) is None
    tier.put(here, b"old")
    tier.put(here, b"x" * 101)
    assert tier.get(here) is None
    assert (tier.counters.entries, tier.counters.bytes) == (0, 0)
    none = MemoryTier(0)
    none.put(here, b"")
    assert none.get(here) is None
