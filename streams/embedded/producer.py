"""The transactional producer: values into segments first, then all rows in one commit of the index.

| step | does | if it dies after this step, then … |
|---|---|---|
| 1 | writes values into a segment of its own | nothing is visible; an unreferenced tail or file, removed by upkeep |
| 2 | durable logs: flushes segments to the disk | as 1 |
| 3 | takes the write lock | the kernel frees it |
| 4 | BEGIN IMMEDIATE | SQLite's locks fall with the process |
| 5 | fences: producer epoch, owner of each partition | as 4 |
| 6 | inserts rows, offsets, counters | nothing is visible: a WAL without commit frame is ignored |
| 7 | COMMIT, frees the lock | inside: all or nothing, perhaps decided later (upkeep writes before it looks); after: all is there |
| 8 | rings the bell | readers find it within 100 ms |
"""

from __future__ import annotations

import sqlite3
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import xxhash

from streams.checks import check_position, unknown_topic
from streams.contracts import Headers, Position, TopicPartition
from streams.contracts import Membership as AnyMembership
from streams.embedded import groups
from streams.embedded.catalog import part_of
from streams.embedded.encoding import encode_headers
from streams.embedded.groups import Membership
from streams.embedded.index import msg_id, next_tick, roll_back, translated
from streams.embedded.recovery import flush
from streams.embedded.segments import SegmentWriter
from streams.errors import Closed, Exhausted, Fenced, HeadraceError, Rebalanced, UnknownOutcome, Usage
from streams.killpoints import reached

if TYPE_CHECKING:
    from streams.embedded.log import EmbeddedLog

INLINE_BYTES = 4096
"""Values up to this size lie in the index itself: no segment, and removing them is one DELETE."""

_INSERT = (
    "INSERT INTO msg (id, seg, pos, len, digest, hdr, key, data, cum, compact, died) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class _Message(NamedTuple):
    part: int
    segment: int | None
    position: int | None
    length: int
    digest: int | None
    headers: bytes | None
    key: bytes | None
    data: bytes | None
    compact: bool
    died: int | None


@dataclass(frozen=True, slots=True)
class _Target:
    """What ``send`` needs to know of a topic."""

    parts: tuple[int, ...]
    compacted: bool
    max_message_bytes: int


class EmbeddedProducer:
    """See ``streams.contracts.Producer``; made by ``EmbeddedLog.producer``."""

    def __init__(self, log: EmbeddedLog, transactional_id: str, epoch: int) -> None:
        self._log = log
        self._name = transactional_id
        self._epoch = epoch
        self._writers: dict[str, SegmentWriter] = {}
        self._full: list[SegmentWriter] = []
        self._targets: dict[str, _Target] = {}
        self._messages: list[_Message] = []
        self._offsets: list[tuple[Membership, Mapping[TopicPartition, Position]]] = []
        self._folder_changed = False
        self._open = False
        self._failed: Exhausted | None = None
        self._dead: str | None = None

    def begin(self) -> None:
        """Start a transaction."""
        self._check_usable()
        if self._open:
            raise self._usage("no open transaction", "begin within one", "Commit or abort it first.")
        self._open = True

    def send(
        self,
        topic: str,
        partition: int,
        value: bytes | memoryview | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        """Add a record; writes its bytes at once."""
        self._check_open()
        target = self._target(topic)
        if not 0 <= partition < len(target.parts):
            raise unknown_topic(f"{topic}/{partition}")
        if key is None and target.compacted:
            raise self._usage("a key", "none", "Records of a compacted topic need one.")
        if value is None and not target.compacted:
            raise self._usage("a value", "none", "Only a compacted topic takes records without value.")
        view = memoryview(b"" if value is None else value).cast("B")
        if len(view) > target.max_message_bytes:
            raise Exhausted(
                expected=f"at most {target.max_message_bytes} bytes",
                got=f"{len(view)} bytes",
                where=f"topic {topic}",
                do="Write smaller messages, or make the topic with a larger max_message_bytes.",
            )
        segment, position, data = self._store(topic, view, value is None)
        self._messages.append(
            _Message(
                part=target.parts[partition],
                segment=segment,
                position=position,
                length=len(view),
                digest=_signed(xxhash.xxh3_64_intdigest(view)),
                headers=encode_headers(headers),
                key=None if key is None else bytes(key),
                data=data,
                compact=target.compacted,
                died=int(time.time()) if value is None else None,
            )
        )
        reached("log.1")

    def send_offsets(self, membership: AnyMembership, positions: Mapping[TopicPartition, Position]) -> None:
        """Add offsets of a group; checked at commit."""
        self._check_open()
        for tp, position in positions.items():
            check_position(tp, position)
        self._offsets.append((cast(Membership, membership), dict(positions)))

    def commit(self) -> None:
        """Make all of it visible."""
        self._check_open()
        if self._failed is not None:
            raise self._failed
        if self._log.durable:
            self._sync_segments()
        reached("log.2")  # Step 2
        try:
            self._commit_index()
        except Fenced:
            self._die("it was fenced by a newer producer of the same id")
            raise
        except (Rebalanced, Exhausted, Usage):
            self._forget()
            raise
        except BaseException as error:
            self._die("the outcome of a commit is unknown")
            if isinstance(error, HeadraceError):
                raise UnknownOutcome(
                    expected="a commit that ends",
                    got=str(error),
                    where=self._where,
                    do="Make a new producer, then read the committed offsets again.",
                ) from error
            raise
        self._keep()
        self._log.bell.ring()
        reached("log.8")  # Step 8

    def abort(self) -> None:
        """Forget the transaction."""
        self._log.check_usable()
        self._forget()

    def close(self) -> None:
        """Abort and release."""
        if self._dead is None:
            self._die("it was closed")
        self._log.forget(self)

    @property
    def _where(self) -> str:
        return f"producer {self._name}"

    def _commit_index(self) -> None:
        log = self._log
        with log.lock:  # Step 3
            reached("log.3")
            with translated(self._where):
                db = log.index.begin()  # Step 4
            try:
                reached("log.4")
                self._check_fences(db)  # Step 5
                reached("log.5")
                with translated(self._where):
                    self._insert(db)  # Step 6
                reached("log.6")
            except BaseException:
                roll_back(db)
                raise
            try:
                db.execute("COMMIT")  # Step 7
            except sqlite3.Error as error:
                roll_back(db)
                raise UnknownOutcome(
                    expected="a commit that ends",
                    got=str(error),
                    where=self._where,
                    do="Make a new producer, then read the committed offsets again.",
                ) from error
        reached("log.7")

    def _check_fences(self, db: sqlite3.Connection) -> None:
        row = db.execute("SELECT epoch FROM producer WHERE tid = ?", (self._name,)).fetchone()
        if row is None or row[0] != self._epoch:
            raise Fenced(
                expected=f"epoch {self._epoch}",
                got=f"epoch {row[0] if row else None}",
                where=self._where,
                do="Another process works under this transactional id now: stop.",
            )
        for membership, positions in self._offsets:
            parts = {tp: part_of(db, tp) for tp in positions}
            groups.check_fence(db, membership, parts, self._where)

    def _insert(self, db: sqlite3.Connection) -> None:
        tick = next_tick(db)
        state = {part: self._part_state(db, part) for part in {message.part for message in self._messages}}
        rows = []
        live: dict[int, int] = defaultdict(int)
        for m in self._messages:
            offset, total = state[m.part]
            rows.append(
                (msg_id(m.part, offset), m.segment, m.position, m.length, m.digest, m.headers, m.key, m.data, total,
                 m.part if m.compact else None, m.died)
            )  # fmt: skip
            state[m.part] = (offset + 1, total + m.length)
            if m.segment is not None:
                live[m.segment] += 1
        db.executemany(_INSERT, rows)
        skip = self._log.skipped_offsets
        db.executemany(
            "UPDATE part SET next = ?, total = ? WHERE id = ?",
            [(offset + skip, total, part) for part, (offset, total) in state.items()],
        )
        db.executemany(
            "UPDATE seg SET live = live + ?, dirty = ? WHERE id = ?",
            [(count, 0 if self._log.durable else tick, segment) for segment, count in live.items()],
        )
        for membership, positions in self._offsets:
            stored = [(part_of(db, tp), position) for tp, position in positions.items()]
            groups.store_offsets(db, membership.group, stored)

    def _part_state(self, db: sqlite3.Connection, part: int) -> tuple[int, int]:
        row = db.execute("SELECT next, total FROM part WHERE id = ?", (part,)).fetchone()
        if row is None:
            deleted = [name for name, target in self._targets.items() if part in target.parts]
            self._targets.clear()
            raise unknown_topic(f"{', '.join(deleted)}, deleted during the transaction")
        return row

    def _store(self, topic: str, view: memoryview, tombstone: bool) -> tuple[int | None, int | None, bytes | None]:
        if tombstone:
            return None, None, None
        if len(view) <= INLINE_BYTES:
            return None, None, bytes(view)
        try:
            writer = self._writer(topic, len(view))
            return writer.id, writer.append(view), None
        except Exhausted as error:
            self._failed = error
            raise

    def _writer(self, topic: str, length: int) -> SegmentWriter:
        writer = self._writers.get(topic)
        if writer is not None and not writer.fits(length):
            # Its flock must outlive the transaction: the rows that point into it are not there yet.
            self._full.append(self._writers.pop(topic))
            writer = None
        if writer is None:
            writer = self._writers[topic] = self._log.segments.create(topic, length)
            self._folder_changed = True
        return writer

    def _sync_segments(self) -> None:
        used = {message.segment for message in self._messages}
        try:
            for writer in (*self._full, *self._writers.values()):
                if writer.id in used:
                    writer.sync()
            if self._folder_changed:
                flush(self._log.segments.folder)
                self._folder_changed = False
        except HeadraceError:
            # After a failed flush the kernel may have dropped the pages: these files are not to be trusted.
            self._die("a flush to the disk failed")
            raise

    def _target(self, topic: str) -> _Target:
        target = self._targets.get(topic)
        if target is None:
            info = self._log.topic(topic)
            if info is None:
                raise unknown_topic(topic)
            tps = [TopicPartition(topic, p) for p in range(info.spec.partitions)]
            parts = self._log.catalog.parts(tps)
            target = _Target(tuple(parts[tp] for tp in tps), info.spec.compacted, info.spec.max_message_bytes)
            self._targets[topic] = target
        return target

    def _keep(self) -> None:
        for writer in self._writers.values():
            writer.keep()
        self._end()

    def _forget(self) -> None:
        for writer in self._writers.values():
            writer.forget()
        self._end()

    def _end(self) -> None:
        for writer in self._full:
            writer.close()
        self._full = []
        self._messages = []
        self._offsets = []
        self._open = False
        self._failed = None

    def _die(self, reason: str) -> None:
        self._dead = self._dead or reason
        self._end()
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def _check_usable(self) -> None:
        self._log.check_usable()
        if self._dead is not None:
            raise Closed(
                expected="a usable producer",
                got=self._dead,
                where=self._where,
                do="Make a new producer if it is yours.",
            )

    def _check_open(self) -> None:
        self._check_usable()
        if not self._open:
            raise self._usage("an open transaction", "none", "Call begin first.")

    def _usage(self, expected: str, got: str, do: str) -> Usage:
        return Usage(expected=expected, got=got, where=self._where, do=do)


def _signed(digest: int) -> int:
    return digest - (1 << 64) if digest >= 1 << 63 else digest
