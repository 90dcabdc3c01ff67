"""The embedded log: a folder that several processes of one machine use at once.

    log.db          topics, rows of messages, offsets, groups (SQLite, WAL)
    write.lock      the one lock behind which all writes happen
    bell            touched after each commit
    seg/            values larger than 4 KiB; one file belongs to one process
    members/        one file a group member, whose lock ends with its process

Not for network file systems: the index needs shared memory and locks of one machine.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from streams.contracts import GroupInfo, Log, Position, TopicInfo, TopicPartition, TopicSpec
from streams.embedded import groups, recovery
from streams.embedded.catalog import Catalog, part_of
from streams.embedded.consumer import EmbeddedConsumer
from streams.embedded.index import LAYOUT, OFFSET_MASK, Index, msg_id, translated
from streams.embedded.locks import WriteLock, after_fork, boottime_s, flock_is_free, fork_count
from streams.embedded.members import Members
from streams.embedded.producer import EmbeddedProducer
from streams.embedded.segments import Segments
from streams.embedded.upkeep import Upkeep
from streams.embedded.wakeup import Bell
from streams.errors import Closed, SchemaMismatch, Usage

Durability = Literal["process", "power"]
DAY_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the log puts up with silence.

    Args:
        poll_timeout_s: a group member that does not poll for longer loses its partitions.
        group_ttl_s: a group without sign of life for longer holds up no retention.
    """

    poll_timeout_s: float = 300.0
    group_ttl_s: float = 7 * DAY_S


def open_log(
    directory: Path,
    *,
    durability: Durability = "process",
    create: bool = True,
    session_timeout_s: float = 10.0,
    patience: Patience | None = None,
    skipped_offsets: int = 0,
) -> EmbeddedLog:
    """Open the log in ``directory``.

    Args:
        directory: made if it is not there.
        durability: ``process``: what was committed survives the death of any process. ``power``: also a loss of
            power, at the cost of two flushes a transaction. Stored in the log; all who open it must say the same.
        create: ``False`` refuses a folder without a log.
        session_timeout_s: a group member whose process stands still for longer loses its partitions.
        patience: further times; ``None``: the defaults.
        skipped_offsets: for tests: offsets left out after each transaction, as Kafka's markers do.

    Raises:
        Usage: no log there, other durability, or the folder may not be written. SchemaMismatch: made by another
        version. Broken: the log lost data. Closed: it was open in the parent of a forked process.
    """
    directory = Path(directory).absolute()
    patience = patience or Patience()
    if not create and not (directory / "log.db").exists():
        raise Usage(expected="a log", got="none", where=str(directory), do="Start a role that writes first.")
    with translated(str(directory)):
        for folder in (directory, directory / "seg", directory / "members"):
            folder.mkdir(parents=True, exist_ok=True)
        lock = WriteLock.acquire_handle(directory / "write.lock")
    try:
        index = Index(directory, lock, "FULL" if durability == "power" else "NORMAL")
        try:
            _check_settings(index, directory, durability)
            with translated(str(directory)):
                bell = Bell(directory / "bell")
        except BaseException:
            index.close()
            raise
    except BaseException:
        lock.release_handle()
        raise
    members = Members(
        directory, index, bell, session_timeout_s=session_timeout_s, poll_timeout_s=patience.poll_timeout_s
    )
    return EmbeddedLog(
        directory,
        Parts(lock, index, bell, members, Upkeep(directory, index, group_ttl_s=patience.group_ttl_s)),
        durable=durability == "power",
        skipped_offsets=skipped_offsets,
    )


@dataclass(frozen=True, slots=True)
class Parts:
    """What an open log consists of."""

    lock: WriteLock
    index: Index
    bell: Bell
    members: Members
    upkeep: Upkeep


class EmbeddedLog:
    """See ``streams.contracts.Log``; made by ``open_log``."""

    def __init__(self, directory: Path, parts: Parts, *, durable: bool, skipped_offsets: int) -> None:
        self.directory = directory
        self.durable = durable
        self.skipped_offsets = skipped_offsets
        self.lock = parts.lock
        self.index = parts.index
        self.bell = parts.bell
        self.members = parts.members
        self.catalog = Catalog(parts.index)
        self.segments = Segments(directory, parts.index)
        self._upkeep = parts.upkeep
        self._users: set[EmbeddedProducer | EmbeddedConsumer] = set()
        self._seen = threading.local()
        self._opened_tick = self.index.tick()
        self._forks = fork_count()
        self._closed = False
        with self.index.read() as db:
            self._id = db.execute("SELECT value FROM meta WHERE name = 'id'").fetchone()[0]

    @property
    def id(self) -> str:
        """Made with the log."""
        return self._id

    def check_usable(self) -> None:
        """Raise ``Closed`` after ``close`` or a fork."""
        if self._forks != fork_count():
            raise after_fork(str(self.directory))
        if self._closed:
            raise Closed(
                expected="an open log", got="one that was closed", where=str(self.directory), do="Open it again."
            )

    def create_topic(self, spec: TopicSpec) -> TopicInfo:
        """Create it, or return the one that exists."""
        self.check_usable()
        info = self.catalog.create(spec)
        self.bell.ring()
        return info

    def topic(self, name: str) -> TopicInfo | None:
        """Describe, or ``None``."""
        self.check_usable()
        return self.catalog.find(name)

    def topics(self) -> list[TopicInfo]:
        """All, by name."""
        self.check_usable()
        return self.catalog.all()

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        self.check_usable()
        self.catalog.delete(name)
        self.bell.ring()

    def producer(self, transactional_id: str) -> EmbeddedProducer:
        """Make a producer; the write of its epoch also settles an older one's last commit."""
        self.check_usable()
        with self.index.write() as db:
            epoch = db.execute(
                "INSERT INTO producer (tid, epoch) VALUES (?, 1) "
                "ON CONFLICT (tid) DO UPDATE SET epoch = epoch + 1 RETURNING epoch",
                (transactional_id,),
            ).fetchall()[0][0]
        producer = EmbeddedProducer(self, transactional_id, epoch)
        self._users.add(producer)
        return producer

    def consumer(self, group: str | None = None) -> EmbeddedConsumer:
        """Make a consumer."""
        self.check_usable()
        consumer = EmbeddedConsumer(self, group)
        self._users.add(consumer)
        return consumer

    def forget(self, user: EmbeddedProducer | EmbeddedConsumer) -> None:
        """A producer or consumer was closed."""
        self._users.discard(user)

    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset of the first stored record, or the end."""
        self.check_usable()
        result = {}
        with self.index.read() as db:
            for tp in partitions:
                part = part_of(db, tp)
                row = db.execute(
                    "SELECT id FROM msg WHERE id >= ? AND id <= ? ORDER BY id LIMIT 1",
                    (msg_id(part, 0), msg_id(part, OFFSET_MASK)),
                ).fetchone()
                end = db.execute("SELECT next FROM part WHERE id = ?", (part,)).fetchone()[0]
                result[tp] = row[0] & OFFSET_MASK if row else end
        return result

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offset to be given."""
        self.check_usable()
        with self.index.read() as db:
            return {
                tp: db.execute("SELECT next FROM part WHERE id = ?", (part_of(db, tp),)).fetchone()[0]
                for tp in partitions
            }

    def bytes_after(self, tp: TopicPartition, offset: int) -> int:
        """Bytes stored at or after ``offset``; of a compacted topic too many. Constant cost."""
        self.check_usable()
        with self.index.read() as db:
            part = part_of(db, tp)
            total = db.execute("SELECT total FROM part WHERE id = ?", (part,)).fetchone()[0]
            row = db.execute(
                "SELECT cum FROM msg WHERE id >= ? AND id <= ? ORDER BY id LIMIT 1",
                (msg_id(part, offset), msg_id(part, OFFSET_MASK)),
            ).fetchone()
            return total - row[0] if row else 0

    def group(self, name: str) -> GroupInfo:
        """The group as seen now; members that died are not counted."""
        self.check_usable()
        now = boottime_s()
        with self.index.read() as db:
            members = db.execute("SELECT id, beat, timeout_s FROM member WHERE grp = ?", (name,)).fetchall()
            rows = db.execute(
                "SELECT topic.name, part.p, offs.off, offs.meta FROM offs JOIN part ON part.id = offs.part "
                "JOIN topic ON topic.id = part.topic WHERE offs.grp = ? AND offs.off >= 0 ORDER BY topic.name, part.p",
                (name,),
            ).fetchall()
        alive = sum(
            now - beat <= timeout and not flock_is_free(self.members.folder / member)
            for member, beat, timeout in members
        )
        return GroupInfo(name, alive, {TopicPartition(topic, p): Position(off, meta) for topic, p, off, meta in rows})

    def groups(self) -> list[str]:
        """Names of groups with members or offsets."""
        self.check_usable()
        with self.index.read() as db:
            rows = db.execute("SELECT grp FROM offs UNION SELECT grp FROM member ORDER BY 1").fetchall()
        return [name for (name,) in rows]

    def delete_group(self, name: str) -> None:
        """Delete a group."""
        self.check_usable()
        with self.index.write() as db:
            groups.delete(db, name)
        self.bell.ring()

    def wait(self, timeout_s: float) -> bool:
        """Block until something was committed since this thread's last ``wait`` began to look."""
        deadline = boottime_s() + timeout_s
        before = getattr(self._seen, "tick", self._opened_tick)
        while True:
            self.check_usable()
            ticket = self.bell.ticket()
            version = self.index.version()
            self._seen.tick = self.index.tick()
            if self._seen.tick != before:
                return True
            while self.index.version() == version:
                left = deadline - boottime_s()
                if left <= 0:
                    return False
                self.bell.wait(ticket, left)
                ticket = self.bell.ticket()
                self.check_usable()

    def sync(self) -> None:
        """All that is committed now survives a loss of power."""
        self.check_usable()
        if not self.durable:
            recovery.sync(self.directory, self.index)

    def maintain(self) -> None:
        """Retention, compaction, removal of files."""
        self.check_usable()
        self._upkeep.run()

    def size_bytes(self) -> int:
        """Bytes on disk (segments are sparse files)."""
        self.check_usable()
        total = 0
        for path in self.directory.rglob("*"):
            try:
                total += path.stat().st_blocks * 512
            except FileNotFoundError:
                continue
        return total

    def holder_pid(self) -> int | None:
        """Process that holds the write lock at this moment, if it is another one."""
        return self.lock.holder_pid()

    def close(self) -> None:
        """Release all."""
        if self._closed or self._forks != fork_count():
            return
        for user in list(self._users):
            user.close()
        self.members.close()
        self._closed = True
        self.segments.close()
        self.index.close()
        self.bell.close()
        self.lock.release_handle()


if TYPE_CHECKING:

    def _fits_the_contract(log: EmbeddedLog) -> Log:
        return log


def _check_settings(index: Index, directory: Path, durability: str) -> None:
    with index.write() as db:
        stored = dict(db.execute("SELECT name, value FROM meta").fetchall())
        if not stored:
            stored = {"id": secrets.token_hex(16), "layout": str(LAYOUT), "durability": durability, "boot": ""}
            db.executemany("INSERT INTO meta (name, value) VALUES (?, ?)", list(stored.items()))
    if stored.get("layout") != str(LAYOUT):
        raise SchemaMismatch(
            expected=f"a log of layout {LAYOUT}",
            got=f"layout {stored.get('layout')}",
            where=str(directory),
            do="Use the version that made it, or remove the folder and read the files again.",
        )
    if stored["durability"] != durability:
        raise Usage(
            expected=f"durability {stored['durability']!r}, with which this log was made",
            got=repr(durability),
            where=str(directory),
            do="Open it with the same setting, or make a new log.",
        )
    recovery.check_boot(directory, index, stored["boot"])


def sqlite_version_note(version: tuple[int, ...]) -> str | None:
    """What to say about this version of SQLite; ``None`` if nothing."""
    fixed = version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (3, 44, 6) <= version < (3, 45)
    text = ".".join(map(str, version))
    if fixed:
        return None
    return f"SQLite {text} has the WAL-reset bug: open log.db with no other program while Headrace runs"
