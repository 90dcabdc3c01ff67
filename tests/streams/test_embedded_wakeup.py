"""The bell: nobody misses a ring between a look and a wait; without inotify it polls."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from streams.contracts import TopicPartition, TopicSpec
from streams.embedded import wakeup
from streams.embedded.log import open_log
from streams.embedded.wakeup import Bell
from tests.contracts.log_helpers import put, values


def test_a_ring_after_the_ticket_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "LOOK_S", 60.0)
    bell, other = Bell(tmp_path / "bell"), Bell(tmp_path / "bell")
    ticket = bell.ticket()
    other.ring()
    bell.wait(ticket, 60.0)
    bell.wait(ticket, 60.0)  # an old ticket never waits
    thread = threading.Thread(target=bell.wait, args=(bell.ticket(), 60.0))
    thread.start()
    other.ring()
    thread.join(30.0)
    assert not thread.is_alive()
    bell.close()
    other.close()


def test_all_threads_of_a_process_hear_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "LOOK_S", 60.0)
    bell = Bell(tmp_path / "bell")
    first = bell.ticket()

    def wait() -> None:
        while bell.ticket() == first:
            bell.wait(first, 60.0)

    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    bell.ring()
    for thread in threads:
        thread.join(30.0)
        assert not thread.is_alive()
    bell.close()


def test_it_looks_again_though_nobody_rings(tmp_path: Path) -> None:
    bell = Bell(tmp_path / "bell")
    began = time.monotonic()
    bell.wait(bell.ticket(), 60.0)
    assert time.monotonic() - began < 30.0
    bell.close()


def test_a_commit_rings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "LOOK_S", 60.0)
    log, other = open_log(tmp_path / "log"), open_log(tmp_path / "log")
    log.create_topic(TopicSpec("t", 1))
    consumer = log.consumer()
    consumer.assign([TopicPartition("t", 0)])
    while log.wait(0):
        pass
    producer = other.producer("p")
    for act in (lambda: consumer.poll(10, 60.0), lambda: log.wait(60.0)):
        timer = threading.Timer(0.1, put, (producer, "t", 0, b"x"))
        timer.start()
        began = time.monotonic()
        assert act()
        assert time.monotonic() - began < 30.0
        timer.join()
        while log.wait(0):
            pass
    log.close()
    other.close()


def test_without_inotify_readers_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "_watch", lambda path: None)
    log = open_log(tmp_path / "log")
    log.create_topic(TopicSpec("t", 1))
    consumer = log.consumer()
    consumer.assign([TopicPartition("t", 0)])
    timer = threading.Timer(0.05, put, (log.producer("p"), "t", 0, b"x"))
    timer.start()
    assert values(consumer.poll(10, 30.0)) == [b"x"]
    timer.join()
    log.close()
