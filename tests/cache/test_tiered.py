"""``get_or_load``: tiers in order, single flight, tiers that fail."""

from __future__ import annotations

import threading

import pytest

from cache.contracts import Counters, Key
from cache.memory import MemoryTier
from cache.tiers import TieredCache

KEY = Key("t", 0, 5)


class Failing:
    """A tier that breaks its promise: every call raises."""

    name = "failing"

    def __init__(self) -> None:
        self.counters = Counters()

    def get(self, key: Key) -> bytes:
        raise OSError("gone")

    def put(self, key: Key, value: bytes | memoryview) -> None:
        raise OSError("gone")

    def clear(self) -> None:
        raise OSError("gone")

    def close(self) -> None:
        """Nothing."""


def never() -> bytes:
    raise AssertionError("loaded again")


def test_the_first_tier_that_has_it_fills_those_before() -> None:
    near, far = MemoryTier(100), MemoryTier(100)
    cache = TieredCache([near, far])
    assert cache.get_or_load(KEY, lambda: b"v") == b"v"
    assert near.get(KEY) == far.get(KEY) == b"v"
    near.clear()
    assert cache.get_or_load(KEY, never) == b"v"
    assert near.get(KEY) == b"v"
    assert set(cache.counters()) == {"memory"}


@pytest.mark.parametrize("tiers", [[], [MemoryTier(0)], [Failing()], [Failing(), MemoryTier(0)]])
def test_without_a_tier_that_keeps_every_call_loads(tiers: list[MemoryTier]) -> None:
    cache, calls = TieredCache(tiers), []
    for _ in range(3):
        assert cache.get_or_load(KEY, lambda: calls.append(1) or b"v") == b"v"  # type: ignore[func-returns-value]
    assert len(calls) == 3


def test_a_failing_tier_is_an_empty_one_and_is_counted() -> None:
    failing, memory = Failing(), MemoryTier(100)
    cache = TieredCache([failing, memory])  # type: ignore[list-item]
    assert cache.get_or_load(KEY, lambda: b"v") == b"v"
    assert cache.get_or_load(KEY, never) == b"v"
    assert failing.counters.errors == 4


def test_one_load_for_all_who_ask_at_once() -> None:
    cache, gate, calls = TieredCache([MemoryTier(100)]), threading.Event(), []

    def load() -> bytes:
        calls.append(1)
        gate.wait(10)
        return b"v"

    got: list[object] = []
    threads = [threading.Thread(target=lambda: got.append(cache.get_or_load(KEY, load))) for _ in range(6)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert got == [b"v"] * 6
    assert len(calls) == 1


def test_an_error_reaches_everybody_and_nothing_is_kept() -> None:
    cache, gate = TieredCache([MemoryTier(100)]), threading.Event()

    def load() -> bytes:
        gate.wait(10)
        raise ValueError("no")

    errors: list[str] = []

    def ask() -> None:
        try:
            cache.get_or_load(KEY, load)
        except ValueError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join()
    assert errors == ["no"] * 4
    assert cache.get_or_load(KEY, lambda: b"now") == b"now"
