"""Folders on a real HDFS."""

from __future__ import annotations

import errno
import gzip
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hdfs_native import WriteOptions

from dev.daemon import Daemon
from dev.hdfs_service import Hdfs
from experiments import names
from experiments.feed import Feed
from ingest.contracts import Config
from ingest.hdfs_store import DEADLINE_S
from ingest.sources import Folder, FoundFile
from ingest.stores import Away
from streams.contracts import Log
from streams.embedded.log import open_log
from streams.errors import Unreachable
from streams.tail import read_to_end
from tests.ingest.world import Ingest, feed_of, letters, raw_rows

pytestmark = pytest.mark.service

COLUMNS = {"k": "int64", "t": "int64", "v": "float64"}
ROWS = 40_000
BLOCK_BYTES = 1024 * 1024
SMALL = Config(split_bytes=256 * 1024, part_rows=4096, part_bytes=256 * 1024, listing_s=0.2)


def make_files(folder: Path, kind: str, files: int = 2) -> None:
    """Files of ``ROWS`` rows each, as parquet, CSV or gzip CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        random = np.random.default_rng(number)
        k, t = random.integers(0, 2**60, ROWS), np.sort(random.integers(1_600_000_000, 1_600_086_400, ROWS))
        table = pa.table({"k": k, "t": t, "v": random.random(ROWS)})
        if kind == "parquet":
            pq.write_table(table, folder / f"{number}.parquet", row_group_size=5000)
            continue
        text = _csv(table)
        name = f"{number}.csv" + (".gz" if kind == "gzip" else "")
        (folder / name).write_bytes(gzip.compress(text, 1) if kind == "gzip" else text)


def _csv(table: pa.Table) -> bytes:
    lines = (f"{row['k']},{row['t']},{row['v']!r}\n" for row in table.to_pylist())
    return ("k,t,v\n" + "".join(lines)).encode()


def feed_at(url: str, kind: str) -> Feed:
    return feed_of(
        Path("."),
        COLUMNS,
        files={"url": url, "match": "*"},
        format={"parquet": {}} if kind == "parquet" else {"delimited": {}},
    )


def at_present(ingest: Ingest) -> Ingest:
    """HDFS writes times of its own."""
    ingest.clock.set_wall_us(time.time_ns() // 1000 + 10_000_000)
    return ingest


def messages(log: Log, feed: Feed) -> list[tuple[int, bytes]]:
    """Each message of raw: partition, bytes."""
    return [(p, bytes(r.value or b"")) for p in range(feed.partitions) for r in read_to_end(log, names.raw("f"), p)]


def ingest_all(folder: Path, feed: Feed) -> tuple[list[tuple[int, bytes]], dict[tuple[str, int], dict[str, Any]]]:
    log = open_log(folder)
    ingest = at_present(Ingest(log, feed, SMALL))
    ingest.finish()
    assert not letters(log, feed)
    found = messages(log, feed), raw_rows(log, feed)
    ingest.close()
    log.close()
    return found


@pytest.mark.parametrize("kind", ["parquet", "csv", "gzip"])
def test_hdfs_gives_the_bytes_that_a_disk_gives(hdfs: Hdfs, tmp_path: Path, kind: str) -> None:
    make_files(tmp_path / "in", kind)
    url = hdfs.put_folder(tmp_path / "in", f"/same/{kind}")
    local, rows = ingest_all(tmp_path / "a", feed_at(str(tmp_path / "in"), kind))
    remote, _ = ingest_all(tmp_path / "b", feed_at(url, kind))
    assert len(rows) == 2 * ROWS
    assert remote == local


def test_listing_in_pages_with_markers(hdfs: Hdfs) -> None:
    for name in ("a.csv", "dt=1/b c.csv", "_SUCCESS", "_temporary/0/x.csv", "p.csv._COPYING_", "q.tmp", ".p.crc"):
        hdfs.put(f"/list/{name}", b"k\n1\n")
    client = hdfs.client()
    for number in range(2300):
        client.create(f"/list/many/{number:04}.csv", WriteOptions()).close()
    folder = Folder(f"{hdfs.url}/list", "**/*.csv")
    listing = folder.list()
    assert len(listing.files) == 2302
    assert listing.files == sorted(listing.files, key=lambda file: file.path)
    assert sorted(listing.skipped) == [".p.crc", "_SUCCESS", "_temporary/0/x.csv", "p.csv._COPYING_", "q.tmp"]
    (found,) = [file for file in listing.files if file.path == "dt=1/b c.csv"]
    assert found == folder.stat("dt=1/b c.csv")
    assert abs(found.mtime_us / 1e6 - time.time()) < 300
    assert Folder(f"{hdfs.url}/nowhere").list().missing
    assert not Folder(f"{hdfs.url}/nowhere").probe()
    assert folder.stat("nothing") is None


@pytest.mark.parametrize("size", [0, 100, BLOCK_BYTES, BLOCK_BYTES + 7, 2 * BLOCK_BYTES])
@pytest.mark.parametrize("synced", [False, True])
def test_a_file_that_is_being_written_is_told(hdfs: Hdfs, size: int, synced: bool) -> None:
    path, client = f"/open/{size}-{synced}/a.csv", hdfs.client()
    folder = Folder(f"{hdfs.url}{path.removesuffix('/a.csv')}")
    writer = client.create(path, WriteOptions(block_size=BLOCK_BYTES))
    writer.write(b"x" * size)
    if synced and size:
        writer.hsync()
    time.sleep(0.3)
    (file,) = folder.list().files
    assert "still being written" in folder.why_open(file)
    writer.close()
    assert "changed since it was listed" in folder.why_open(file)
    (file,) = folder.list().files
    assert (file.size, folder.why_open(file)) == (size, "")


def test_a_file_that_is_appended_to_is_away_until_it_is_closed(hdfs: Hdfs) -> None:
    hdfs.put("/append/a.csv", b"k\n1\n")
    folder = Folder(f"{hdfs.url}/append")
    (file,) = folder.list().files
    writer = hdfs.client().append("/append/a.csv")
    assert "still being written" in folder.why_open(file)
    with pytest.raises(Away, match="written again"):
        folder.open("a.csv")
    writer.write(b"2\n")
    writer.close()
    with folder.open("a.csv") as handle:
        assert handle.read() == b"k\n1\n2\n"
    assert folder.stat("a.csv") != file


def test_an_open_file_waits_and_holds_up_no_other(hdfs: Hdfs, log: Log) -> None:
    client = hdfs.client()
    writer = client.create("/held/a.csv", WriteOptions(block_size=16384))
    rows = "".join(f"{n},1600000000,0.5\n" for n in range(1000))
    writer.write(("k,t,v\n" + rows).encode()[:16384])
    hdfs.put("/held/b.csv", b"k,t,v\n7,1600000000,0.5\n")
    feed = feed_at(f"{hdfs.url}/held", "csv")
    ingest = at_present(Ingest(log, feed, SMALL))
    ingest.closing = True
    for _ in range(200):
        ingest.workers[0].step(), ingest.workers[1].step()
        ingest.clock.advance(0.3)
    assert {file for file, _ in raw_rows(log, feed)} == {"b.csv"}
    assert "a.csv: it is still being written" in str(ingest.workers[0].report()["waiting"])
    writer.write(("k,t,v\n" + rows).encode()[16384:])
    writer.close()
    ingest.finish()
    assert len(raw_rows(log, feed)) == 1001
    assert not letters(log, feed)
    ingest.close()


def test_an_atomic_rename_is_one_file_once(hdfs: Hdfs, log: Log) -> None:
    client = hdfs.client()
    hdfs.put("/moved/_temporary/0/a.csv", b"k,t,v\n7,1600000000,0.5\n")
    feed = feed_at(f"{hdfs.url}/moved", "csv")
    ingest = at_present(Ingest(log, feed, SMALL))
    ingest.settle()
    assert not raw_rows(log, feed)
    client.rename("/moved/_temporary/0/a.csv", "/moved/a.csv")
    ingest.finish()
    assert list(raw_rows(log, feed)) == [("a.csv", 0)]
    ingest.close()


def test_replaced_and_vanished_files_have_reasons_of_their_own(hdfs: Hdfs, log: Log) -> None:
    for name in ("a", "b"):
        hdfs.put(f"/gone/{name}.csv", b"k,t,v\n7,1600000000,0.5\n")
    feed = feed_at(f"{hdfs.url}/gone", "csv")
    ingest = at_present(Ingest(log, feed, SMALL))
    ingest.workers[0].step()
    ingest.workers[0].step()
    hdfs.client().delete("/gone/a.csv")
    hdfs.put("/gone/b.csv", b"k,t,v\n8,1600000001,0.5\n9,1600000001,0.5\n")
    for _ in range(10):
        ingest.settle(3)
        ingest.clock.advance(100)
    assert sorted((x.source, x.reason) for x in letters(log, feed)) == [
        ("a.csv", "file-gone"),
        ("b.csv", "file-changed"),
    ]
    ingest.close()


class Driver:
    """Planner and reader on the wall clock, each turn timed, until all rows are there."""

    def __init__(self, folder: Path, feed: Feed) -> None:
        from streams.clock import SystemClock

        self.log, self.feed = open_log(folder), feed
        self.ingest = Ingest(self.log, feed, SMALL)
        self.ingest.workers.clear()
        self.ingest.clock = SystemClock()  # type: ignore[assignment]
        self.ingest.workers += [self.ingest.planner(), self.ingest.reader()]

    def rows(self) -> int:
        return int(str(self.ingest.workers[1].report().get("rows", 0)))

    def until(self, rows: int, deadline_s: float) -> float:
        """Seconds until so many rows are read."""
        began_s = time.monotonic()
        while self.rows() < rows:
            assert time.monotonic() < began_s + deadline_s, f"{self.rows()} of {rows}: {self.trouble()}"
            if not any([worker.step() for worker in self.ingest.workers]):
                time.sleep(0.02)
        return time.monotonic() - began_s

    def go(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            if not any([worker.step() for worker in self.ingest.workers]):
                time.sleep(0.02)

    def trouble(self) -> str:
        return " | ".join(str(worker.report()["waiting"]) for worker in self.ingest.workers)

    def close(self) -> None:
        self.ingest.close()
        self.log.close()


@pytest.mark.parametrize("name", ["namenode", "datanode"])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_daemon_away_in_the_middle_costs_time_only(hdfs: Hdfs, tmp_path: Path, name: str, how: str) -> None:
    daemon: Daemon = getattr(hdfs, name)
    make_files(tmp_path / "in", "csv", files=3)
    url = hdfs.put_folder(tmp_path / "in", f"/outage/{name}-{how}")
    feed = feed_at(url, "csv")
    driver = Driver(tmp_path / "log", feed)
    driver.until(ROWS // 2, 30)
    daemon.signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    driver.go(12)
    before = driver.rows()
    assert before < 3 * ROWS
    assert driver.trouble().strip(" |")
    if how == "killed":
        daemon.start()
        hdfs.wait()
    else:
        daemon.signal(signal.SIGCONT)
    assert driver.until(before + 1, 30) < 30
    driver.until(3 * ROWS, 60)
    assert len(raw_rows(driver.log, feed)) == 3 * ROWS
    assert not letters(driver.log, feed)
    driver.close()
    hdfs.wait()


def test_the_threads_of_lost_calls_end_with_them(hdfs: Hdfs) -> None:
    hdfs.put("/slow/a.csv", b"k\n1\n")
    folder = Folder(f"{hdfs.url}/slow")
    folder.list()
    began = threading.active_count()
    hdfs.namenode.signal(signal.SIGSTOP)
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match="no answer within"):
        folder.list()
    assert time.monotonic() - began_s < DEADLINE_S + 1
    hdfs.namenode.signal(signal.SIGCONT)
    assert [file.path for file in folder.list().files] == ["a.csv"]
    time.sleep(1)
    assert threading.active_count() <= began


def test_what_cannot_be_reached_says_so_at_once() -> None:
    for url in ("hdfs://127.0.0.1:1/x", "hdfs://no-such-name-service/x"):
        began_s = time.monotonic()
        with pytest.raises(Unreachable, match=url) as caught:
            Folder(url).probe()
        assert caught.value.exit_code == 3
        assert time.monotonic() - began_s < DEADLINE_S
    assert not Folder("hdfs://127.0.0.1:1/x").reachable()


def test_no_rights_is_no_outage(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    hdfs.put("/secret/a.csv", b"k\n1\n")
    hdfs.client().set_permission("/secret", 0o700)
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    with pytest.raises(PermissionError) as caught:
        Folder(f"{hdfs.url}/secret").stat("a.csv")
    assert caught.value.errno == errno.EACCES


def test_reads_at_any_place(hdfs: Hdfs) -> None:
    data = np.random.default_rng(0).bytes(3 * BLOCK_BYTES + 5)
    hdfs.put("/bytes/a", data)
    folder = Folder(f"{hdfs.url}/bytes")
    random = np.random.default_rng(1)
    with folder.open("a") as handle:
        for _ in range(200):
            at, size = int(random.integers(0, len(data) + 10)), int(random.integers(0, BLOCK_BYTES))
            if random.random() < 0.7:
                handle.seek(min(at, len(data)))
            at = handle.tell()
            assert handle.read(size) == data[at : at + size]
        handle.seek(0)
        assert handle.read() == data
    (file,) = [f for f in folder.list().files if f.path == "a"]
    assert file == FoundFile("a", len(data), file.mtime_us)
