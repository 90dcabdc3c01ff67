"""Full disks, folders that may not be written, damaged files, forks, restarts of the machine."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from streams.contracts import Position, TopicPartition, TopicSpec
from streams.embedded import index as index_module
from streams.embedded import recovery
from streams.embedded.log import EmbeddedLog, open_log, sqlite_version_note
from streams.errors import Broken, Closed, Exhausted, HeadraceError, SchemaMismatch, UnknownOutcome, Usage
from streams.packed import Limits, pack, unpack
from streams.tail import read_to_end
from tests.contracts.log_helpers import put, values
from tests.streams.processes import ROOT

TP = TopicPartition("t", 0)


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """Stands in for a full disk: writes behind ``size`` fail with EFBIG."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


class TestFullDisk:
    def test_no_room_for_a_segment(self, log: EmbeddedLog) -> None:
        log.create_topic(TopicSpec("t", 1))
        producer = log.producer("p")
        producer.begin()
        producer.send("t", 0, b"small")
        with files_no_larger_than(1 << 20), pytest.raises(Exhausted) as caught:
            producer.send("t", 0, b"x" * 10_000)
        assert "room" in caught.value.expected
        with pytest.raises(Exhausted):
            producer.commit()
        producer.abort()
        put(producer, "t", 0, b"y" * 10_000)
        assert values(read_to_end(log, "t", 0)) == [b"y" * 10_000]
        log.maintain()

    def test_no_room_within_a_value(self, log: EmbeddedLog) -> None:
        log.create_topic(TopicSpec("t", 1))
        producer = log.producer("p")
        put(producer, "t", 0, b"a" * 10_000)
        producer.begin()
        with files_no_larger_than(500_000), pytest.raises(Exhausted):
            producer.send("t", 0, b"x" * 1_000_000)
        producer.abort()
        put(producer, "t", 0, b"b" * 1_000_000)
        assert values(read_to_end(log, "t", 0)) == [b"a" * 10_000, b"b" * 1_000_000]

    @pytest.mark.parametrize("room", [0, 100, 4096, 9_000])
    def test_no_room_for_the_index(self, log: EmbeddedLog, room: int) -> None:
        log.create_topic(TopicSpec("t", 1))
        producer = log.producer("p")
        put(producer, "t", 0, b"before")
        wal = log.directory / "log.db-wal"
        producer.begin()
        for _ in range(20):
            producer.send("t", 0, b"z" * 4000)
        with files_no_larger_than(wal.stat().st_size + room), pytest.raises((Exhausted, UnknownOutcome)):
            producer.commit()
        # The log is usable at once; whatever the outcome is called, nothing of the transaction may be there in part.
        put(log.producer("p"), "t", 0, b"after")
        assert values(read_to_end(log, "t", 0)) == [b"before", b"after"]
        log.close()
        again = open_log(log.directory)
        assert values(read_to_end(again, "t", 0)) == [b"before", b"after"]
        again.close()

    def test_a_full_file_system(self, tmp_path: Path) -> None:
        mounted = tmp_path / "small"
        mounted.mkdir()
        mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", mounted], capture_output=True)
        if mount.returncode:
            pytest.skip("may not mount a file system")
        try:
            fill_up(mounted / "log")
        finally:
            subprocess.run(["umount", "-l", mounted], check=True)


def fill_up(directory: Path) -> None:
    """Write until it is full, read all, remove some, go on."""
    log = open_log(directory)
    log.create_topic(TopicSpec("t", 1, retention_bytes=100_000))
    done, refused = 0, ""
    while not refused:
        try:
            put(log.producer("p"), "t", 0, b"%06d" % done + b"x" * (3000 if done % 2 else 30_000))
            done += 1
        except (Exhausted, UnknownOutcome) as error:
            refused = error.got
    assert "No space" in refused or "full" in refused or "I/O" in refused
    assert [int(value[:6]) for value in values(read_to_end(log, "t", 0))] == list(range(done))
    log.close()
    subprocess.run(["mount", "-o", "remount,size=8m", directory.parent], check=True)
    log = open_log(directory)
    log.maintain()
    put(log.producer("p"), "t", 0, b"%06d" % done)
    assert int(values(read_to_end(log, "t", 0))[-1]) == done
    assert log.begin_offsets([TP])[TP] > 0
    log.close()


class TestFolders:
    def test_one_that_may_not_be_written(self, tmp_path: Path) -> None:
        """As another user, if we are root: root may write everywhere."""
        directory = tmp_path / "log"
        open_log(directory).close()
        for path in (directory, *directory.iterdir()):
            path.chmod(0o555 if path.is_dir() else 0o444)
        for parent in directory.parents:
            if parent.is_relative_to(Path("/tmp")) and parent != Path("/tmp"):
                parent.chmod(parent.stat().st_mode | 0o055)
        code = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from streams.embedded.log import open_log\n"
            "from streams.errors import Usage\n"
            "if os.getuid() == 0: os.setuid(65534)\n"
            "try: open_log(Path(sys.argv[1]))\n"
            "except Usage as error: print(error)\n"
        )
        done = subprocess.run([sys.executable, "-c", code, directory], capture_output=True, text=True, cwd=ROOT)
        assert "may be written" in done.stdout, done.stderr
        assert str(directory) in done.stdout

    def test_no_log_there(self, tmp_path: Path) -> None:
        with pytest.raises(Usage):
            open_log(tmp_path / "none", create=False)
        assert not (tmp_path / "none").exists()

    def test_a_file_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_text("x")
        with pytest.raises(HeadraceError):
            open_log(tmp_path / "log")

    def test_another_durability(self, tmp_path: Path) -> None:
        open_log(tmp_path, durability="power").close()
        with pytest.raises(Usage) as caught:
            open_log(tmp_path)
        assert "power" in caught.value.expected
        open_log(tmp_path, durability="power").close()

    def test_another_layout(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        open_log(tmp_path).close()
        monkeypatch.setattr("streams.embedded.log.LAYOUT", index_module.LAYOUT + 1)
        with pytest.raises(SchemaMismatch):
            open_log(tmp_path)

    def test_opened_twice_in_a_process_and_closed_once(self, tmp_path: Path) -> None:
        one, two = open_log(tmp_path), open_log(tmp_path)
        one.create_topic(TopicSpec("t", 1))
        one.close()
        put(two.producer("p"), "t", 0, b"x")
        two.close()


class TestDamage:
    def write(self, log: EmbeddedLog) -> Path:
        """Three batches in one segment; its path."""
        log.create_topic(TopicSpec("t", 1))
        producer = log.producer("p")
        producer.begin()
        for i in range(3):
            batch = pa.record_batch({"x": pa.array(range(i, i + 5000), pa.int64())})
            packed = pack(batch, kind="rows", times=None, lineage={}, compression="none")
            producer.send("t", 0, packed.value, headers=packed.headers)
        producer.commit()
        log.close()
        (path,) = (log.directory / "seg").iterdir()
        return path

    def test_a_flipped_bit_is_noticed_and_blocks_nothing(self, log: EmbeddedLog) -> None:
        path = self.write(log)
        with path.open("r+b") as file:
            file.seek(60_000)
            byte = file.read(1)[0]
            file.seek(60_000)
            file.write(bytes([byte ^ 0x10]))
        again = open_log(log.directory)
        good, broken = [], []
        for record in read_to_end(again, "t", 0):
            try:
                good.append(unpack(record, kind="rows", schema=None, limits=Limits()).column(0)[0].as_py())
            except Broken as error:
                broken.append(error.where)
        assert (good, broken) == ([0, 2], ["t/0@1"])
        again.close()

    @pytest.mark.parametrize("left", [0, 45_000])
    def test_a_tail_cut_off_is_broken_after_what_is_still_there(self, log: EmbeddedLog, left: int) -> None:
        path = self.write(log)
        os.truncate(path, left)
        self.check_broken_at(log.directory, left // 40_000)

    def test_a_missing_segment_is_broken(self, log: EmbeddedLog) -> None:
        self.write(log).unlink()
        self.check_broken_at(log.directory, 0)

    def check_broken_at(self, directory: Path, offset: int) -> None:
        log = open_log(directory)
        reader = log.consumer()
        reader.assign([TP])
        assert [r.offset for r in reader.poll(1 << 30, 0)] == list(range(offset)) if offset else True
        for _ in range(2):
            with pytest.raises(Broken) as caught:
                reader.poll(1 << 30, 0)
            assert caught.value.where == f"t/0@{offset}"
        assert reader.position(TP) == offset
        put(log.producer("p"), "t", 0, b"later")
        reader.seek(TP, 3)
        assert values(reader.poll(1 << 30, 1.0)) == [b"later"]
        log.close()

    def test_an_index_that_is_none(self, log: EmbeddedLog) -> None:
        self.write(log)
        (log.directory / "log.db").write_bytes(b"no database" * 1000)
        with pytest.raises(Broken):
            open_log(log.directory)


class TestRestartOfTheMachine:
    def prepare(self, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> Path:
        log.create_topic(TopicSpec("t", 2))
        put(log.producer("p"), "t", 0, b"x" * 10_000, b"y" * 10_000)
        log.close()
        monkeypatch.setattr(recovery, "boot_id", lambda: "another")
        (path,) = (log.directory / "seg").iterdir()
        return path

    def test_all_is_there(self, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.prepare(log, monkeypatch)
        again = open_log(log.directory)
        assert len(list(read_to_end(again, "t", 0))) == 2
        again.close()

    def test_bytes_that_never_reached_the_disk(self, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
        path = self.prepare(log, monkeypatch)
        with path.open("r+b") as file:
            file.seek(12_288)
            file.write(b"\0" * 4096)
        for _ in range(2):
            with pytest.raises(Broken) as caught:
                open_log(log.directory)
            assert "read the files again" in caught.value.do

    def test_sync_flushes_each_segment_once(self, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
        flushed: list[str] = []
        monkeypatch.setattr(recovery, "flush", lambda path: flushed.append(path.name))
        log.create_topic(TopicSpec("t", 1))
        producer = log.producer("p")
        put(producer, "t", 0, b"x" * 10_000)
        (segment,) = [path.name for path in (log.directory / "seg").iterdir()]
        log.sync()
        assert flushed == [segment, "seg", "log.db-wal", log.directory.name]
        flushed.clear()
        put(producer, "t", 0, b"small")
        log.sync()
        assert segment not in flushed
        put(producer, "t", 0, b"x" * 10_000)
        log.sync()
        assert segment in flushed


class TestForks:
    def test_a_forked_child_is_told(self, log: EmbeddedLog) -> None:
        log.create_topic(TopicSpec("t", 1))
        consumer = log.consumer("g")
        consumer.assign([TP])
        producer = log.producer("p")
        attempts = [
            log.topics,
            lambda: consumer.poll(1, 0),
            lambda: consumer.commit({TP: Position(1)}),
            producer.begin,
            lambda: open_log(log.directory),
        ]
        told = in_a_child(lambda: sum(raises_closed(attempt) for attempt in attempts))
        assert told == len(attempts)
        put(producer, "t", 0, b"x")
        assert values(consumer.poll(1, 1.0)) == [b"x"]

    def test_another_log_can_be_opened_in_a_child(self, log: EmbeddedLog, tmp_path: Path) -> None:
        def use() -> int:
            other = open_log(tmp_path / "other")
            other.create_topic(TopicSpec("t", 1))
            put(other.producer("p"), "t", 0, b"x" * 5000)
            other.close()
            return 7

        assert in_a_child(use) == 7


def raises_closed(act) -> bool:  # type: ignore[no-untyped-def]
    try:
        act()
    except Closed:
        return True
    return False


def in_a_child(act) -> int:  # type: ignore[no-untyped-def]
    """Fork, run, and return the small number that it returned."""
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            code = act()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_the_note_on_sqlite_versions() -> None:
    assert sqlite_version_note((3, 40, 1)) is not None
    assert sqlite_version_note((3, 51, 2)) is not None
    assert sqlite_version_note((3, 51, 3)) is None
    assert sqlite_version_note((3, 50, 7)) is None
    assert sqlite_version_note((3, 44, 6)) is None
    assert sqlite_version_note((3, 45, 0)) is not None
