"""Tiers in front of a loader: the first that has the value gives it, and fills those before it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from cache.contracts import Counters, Key, Tier

Value = bytes | memoryview


class TieredCache:
    """``Cache`` over tiers, nearest first. Without tiers every call loads.

    Concurrent calls for one key run the loader once (single flight).
    """

    def __init__(self, tiers: Sequence[Tier]) -> None:
        self._tiers = tuple(tiers)
        self._flights: dict[Key, Future[Value]] = {}
        self._lock = threading.Lock()

    def get_or_load(self, key: Key, loader: Callable[[], Value]) -> Value:
        """The value; the loader's exception reaches all who wait for it, and nothing is kept then."""
        with self._lock:
            flight = self._flights.get(key)
            mine = flight is None
            if flight is None:
                flight = self._flights[key] = Future()
        if not mine:
            return flight.result()
        try:
            value = self._find_or_load(key, loader)
        except BaseException as error:
            flight.set_exception(error)
            raise
        else:
            flight.set_result(value)
            return value
        finally:
            with self._lock:
                del self._flights[key]

    def replace(self, key: Key, value: Value) -> None:
        """Put a value into every tier: what one of them had was damaged."""
        for tier in self._tiers:
            _put(tier, key, value)

    def counters(self) -> dict[str, Counters]:
        """By tier's name."""
        return {tier.name: tier.counters for tier in self._tiers}

    def close(self) -> None:
        """Close the tiers."""
        for tier in self._tiers:
            tier.close()

    def _find_or_load(self, key: Key, loader: Callable[[], Value]) -> Value:
        for depth, tier in enumerate(self._tiers):
            value = _get(tier, key)
            if value is not None:
                self._fill(depth, key, value)
                return value
        value = loader()
        self._fill(len(self._tiers), key, value)
        return value

    def _fill(self, depth: int, key: Key, value: Value) -> None:
        for tier in self._tiers[:depth]:
            _put(tier, key, value)


def _get(tier: Tier, key: Key) -> Value | None:
    """A tier that breaks its promise and raises is an empty one."""
    begun_s = time.perf_counter()
    try:
        return tier.get(key)
    except Exception:
        tier.counters.errors += 1
        return None
    finally:
        tier.counters.seconds += time.perf_counter() - begun_s


def _put(tier: Tier, key: Key, value: Value) -> None:
    begun_s = time.perf_counter()
    try:
        tier.put(key, value)
    except Exception:
        tier.counters.errors += 1
    finally:
        tier.counters.seconds += time.perf_counter() - begun_s
