"""Readers when something is wrong: files that change or vanish, attempts, rows too large, dead letters that cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments import names
from ingest.contracts import Config
from ingest.status import FeedReport, FeedStatus
from streams.contracts import Log, TopicSpec
from streams.errors import HeadraceError
from tests.ingest.world import Ingest, feed_of, late_rows, letters, raw_rows, text_feed, write

COLUMNS = {"k": "int64", "t": "float64", "x": "string"}


def rows(first: int, count: int) -> str:
    return "".join(f"{i},{i},v{i}\n" for i in range(first, first + count))


def report_of(log: Log) -> FeedReport:
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    return report


def started(log: Log, folder: Path, config: Config, parts: int) -> Ingest:
    """A feed of one file of 10 rows, of which some parts of 2 rows are read."""
    write(folder / "a.csv", "k,t,x\n" + rows(0, 10))
    ingest = Ingest(log, feed_of(folder, COLUMNS), config)
    for _ in range(400):
        if len(raw_rows(log, ingest.feed)) >= 2 * parts:
            return ingest
        for worker in ingest.workers:
            worker.step()
        ingest.clock.advance(0.3)
    raise AssertionError("nothing was read")


SMALL = Config(part_rows=2, listing_s=0.0)


@pytest.mark.parametrize("restart", [False, True])
def test_a_file_that_changes_is_read_no_further(log: Log, tmp_path: Path, restart: bool) -> None:
    folder = tmp_path / "in"
    ingest = started(log, folder, SMALL, 2)
    write(folder / "a.csv", "k,t,x\n" + rows(0, 12))
    if restart:
        ingest.workers[1].close()
        ingest.workers[1] = ingest.reader()
    ingest.finish()
    assert sorted(raw_rows(log, ingest.feed)) == [("a.csv", i) for i in range(4)]
    (letter,) = letters(log, ingest.feed)
    assert (letter.reason, letter.position) == ("file-changed", 4)
    report = report_of(log)
    assert (report.rows, report.used, report.rejected, report.changed_files) == (4, 4, 0, 1)
    assert report.reasons == {"file-changed": 1}
    ingest.close()


def test_same_size_and_time_but_other_bytes(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    ingest = started(log, folder, SMALL, 1)
    write(folder / "a.csv", "k,t,x\n" + rows(0, 10).replace("v", "w"))
    ingest.workers[1].close()
    ingest.workers[1] = ingest.reader()
    ingest.finish()
    assert [letter.reason for letter in letters(log, ingest.feed)] == ["file-changed"]
    ingest.close()


def test_a_file_that_vanishes_is_tried_again_then_rejected(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    ingest = started(log, folder, SMALL, 1)
    (folder / "a.csv").rename(tmp_path / "b")
    ingest.settle()
    assert not letters(log, ingest.feed)
    assert "a.csv" in str(ingest.workers[1].report()["waiting"])
    (tmp_path / "b").rename(folder / "a.csv")
    ingest.clock.advance(100)
    ingest.finish()
    assert len(raw_rows(log, ingest.feed)) == 10
    ingest.close()


def test_a_file_that_stays_away_is_rejected_in_the_end(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    ingest = started(log, folder, SMALL, 1)
    (folder / "a.csv").unlink()
    for _ in range(10):
        ingest.clock.advance(100)
        ingest.settle(3)
    (letter,) = letters(log, ingest.feed)
    assert (letter.reason, letter.position) == ("file-gone", 2)
    ingest.finish()
    assert report_of(log).closed
    ingest.close()


def test_a_folder_that_is_away_costs_no_rows_and_closes_nothing(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    ingest = started(log, folder, SMALL, 1)
    ingest.closing = True
    folder.rename(tmp_path / "away")
    for _ in range(30):
        ingest.clock.advance(100)
        ingest.settle(3)
    assert not letters(log, ingest.feed)
    assert not report_of(log).closed
    assert "not there" in report_of(log).waiting
    (tmp_path / "away").rename(folder)
    ingest.clock.advance(100)
    ingest.finish()
    assert len(raw_rows(log, ingest.feed)) == 10
    assert report_of(log).closed
    ingest.close()


class Fault(HeadraceError):
    """Something else is wrong: the disk is full, a topic is gone."""


class Crash(BaseException):
    """As if the process died: nothing can be tidied up."""


def test_attempts_without_an_end_reject_but_other_ends_do_not(log: Log, tmp_path: Path) -> None:
    ingest = started(log, tmp_path / "in", SMALL, 1)
    for _ in range(9):
        fail(ingest, Fault(expected="", got="", where="", do=""))
        assert not letters(log, ingest.feed)
    for _ in range(5):
        assert not letters(log, ingest.feed)
        fail(ingest, Crash())
    ingest.finish()
    (letter,) = letters(log, ingest.feed)
    assert (letter.reason, letter.position) == ("too-many-attempts", 2)
    ingest.close()


def fail(ingest: Ingest, error: BaseException) -> None:
    """A new reader that begins the split and then meets the error."""

    def parts() -> Iterator[Any]:
        raise error
        yield

    ingest.workers[1].close()
    reader = ingest.workers[1] = ingest.reader()
    reader._format.read = lambda *args: parts()
    with pytest.raises(type(error)):
        [reader.step() for _ in range(20)]


def test_rows_larger_than_a_message(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    log.create_topic(TopicSpec("raw.f", 2, max_message_bytes=3000))
    texts = [os.urandom(size).hex() for size in (100, 700, 5000, 100, 800, 10)]
    write(folder / "a.csv", "k,t,x\n" + "".join(f"1,{i},{text}\n" for i, text in enumerate(texts)))
    ingest = Ingest(log, feed_of(folder, COLUMNS), Config(listing_s=0.0))
    ingest.finish()
    assert sorted(raw_rows(log, ingest.feed)) == [("a.csv", i) for i in (0, 1, 3, 4, 5)]
    assert [(letter.reason, letter.position) for letter in letters(log, ingest.feed)] == [("row-too-large", 2)]
    report = report_of(log)
    assert (report.rows, report.used, report.rejected) == (6, 5, 1)
    ingest.close()


def test_dead_letters_that_cannot_be_written_stop_everything(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.csv", "k,t,x\n1,1,a\n,2,b\n3,3,c\n")
    ingest = Ingest(log, feed_of(folder, COLUMNS), Config(listing_s=0.0))
    log.delete_topic(names.dead_letters("f"))
    with pytest.raises(HeadraceError, match="dlq"):
        ingest.finish()
    assert raw_rows(log, ingest.feed) == {}
    assert report_of(log).rows == 0
    ingest.workers[1].close()
    log.create_topic(TopicSpec(names.dead_letters("f"), 1))
    ingest.workers[1] = ingest.reader()
    ingest.finish()
    assert sorted(raw_rows(log, ingest.feed)) == [("a.csv", 0), ("a.csv", 2)]
    assert [letter.reason for letter in letters(log, ingest.feed)] == ["null-key"]
    ingest.close()


def test_many_letters_go_in_several_messages(log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.sending.LETTERS_BYTES", 1000)
    write(tmp_path / "in" / "a.csv", "k,x\n" + "".join(f"bad{i},x\n" for i in range(100)))
    feed = text_feed({"k": "int64", "x": "string"})
    feed = feed.model_copy(
        update={"files": feed.files.model_copy(update={"url": str(tmp_path / "in")}), "partitions": 2}
    )
    ingest = Ingest(log, feed, Config(listing_s=0.0))
    ingest.settle(30)
    found = letters(log, feed)
    assert [(letter.position, letter.line, letter.raw) for letter in found] == [
        (i, i + 2, f"bad{i},x".encode()) for i in range(100)
    ]
    assert all(f"'bad{letter.position}'" in letter.detail for letter in found)
    ingest.close()


def test_pieces_of_large_parts_are_committed_once(log: Log, tmp_path: Path) -> None:
    """A part above ``part_bytes`` is several transactions; a reader that dies between two of them repeats nothing."""
    folder = tmp_path / "in"
    write(folder / "a.csv", "k,t,x\n" + "".join(f"{i if i % 7 else ''},{i},{'y' * 200}\n" for i in range(60)))
    feed = feed_of(folder, COLUMNS)
    ingest = Ingest(log, feed, Config(part_bytes=2000, listing_s=0.0))
    ingest.workers[1]._format._config = Config(listing_s=0.0)  # parts larger than transactions
    before = -1
    while len(raw_rows(log, feed)) < 51:
        assert before < len(raw_rows(log, feed)) or before == -1
        for worker in ingest.workers:
            worker.step()
        ingest.clock.advance(0.3)
    ingest.finish()
    assert len(raw_rows(log, feed)) == 51
    assert sorted(letter.position for letter in letters(log, feed)) == list(range(0, 60, 7))
    assert not late_rows(log, feed)
    ingest.close()


@pytest.mark.parametrize(("before", "after"), [(100, 10), (10, 100), (100, 33), (7, 100)])
@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_a_reader_with_parts_of_another_size_goes_on_at_the_row(
    log: Log, tmp_path: Path, before: int, after: int, pieces: int
) -> None:
    """It dies between two transactions of one part; the next one has other settings."""
    folder = tmp_path / "in"
    write(folder / "a.csv", "k,t,x\n" + "".join(f"{i if i % 9 else 'bad'},{i},{'y' * 50}\n" for i in range(100)))
    feed = feed_of(folder, COLUMNS)
    ingest = Ingest(log, feed, Config(listing_s=0.0))
    first = ingest.workers[1]
    first._format._config, first._config = Config(part_rows=before), Config(part_bytes=300)
    commit, left = first._commit, pieces

    def dies(*args: Any, **kwargs: Any) -> None:
        nonlocal left
        commit(*args, **kwargs)
        left -= 1
        if not left:
            raise Crash

    first._commit = dies
    with pytest.raises(Crash):
        ingest.settle()
    ingest.workers[1] = ingest.reader()
    ingest.workers[1]._format._config = Config(part_rows=after)
    first.close()
    ingest.finish()
    assert sorted(row for _, row in raw_rows(log, feed)) == [i for i in range(100) if i % 9]
    assert sorted(letter.position for letter in letters(log, feed)) == list(range(0, 100, 9))
    ingest.close()
