"""Reading ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ingest.ahead import Ahead


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_the_same_in_the_same_order(pool: ThreadPoolExecutor, count: int) -> None:
    ahead = Ahead(iter(range(count)), pool)
    assert list(ahead) == list(range(count))
    assert next(ahead, None) is None


def test_errors_come_at_their_place_and_end_it(pool: ThreadPoolExecutor) -> None:
    def parts() -> Iterator[int]:
        yield 1
        raise OSError("away")

    ahead = Ahead(parts(), pool)
    assert next(ahead) == 1
    with pytest.raises(OSError, match="away"):
        next(ahead)
    assert next(ahead, None) is None


def test_one_ahead_and_no_more(pool: ThreadPoolExecutor) -> None:
    made: list[int] = []
    first, second = threading.Event(), threading.Event()

    def parts() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            (first if number == 0 else second).set()
            yield number

    ahead = Ahead(parts(), pool)
    assert first.wait(5)
    assert next(ahead) == 0
    assert second.wait(5)
    pool.submit(int).result(5)  # whatever was begun is over
    assert made == [0, 1]


def test_dropped_halfway_the_inner_one_is_closed() -> None:
    closed = threading.Event()

    def parts() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            closed.set()

    with ThreadPoolExecutor(1) as pool:
        ahead = Ahead(parts(), pool)
        assert next(ahead) == 0
        del ahead
    assert closed.wait(5)
