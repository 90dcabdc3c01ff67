"""The SQLite file of a log: tables, connections, transactions.

Everything that writes holds the write lock from BEGIN to the end of COMMIT. That covers SQLite's automatic
checkpoint too, and so keeps away from the WAL-reset bug of SQLite 3.7.0 to 3.51.2 (a commit that races a checkpoint of
another process). Therefore: no tool that writes may open this file beside a running log.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streams.embedded.locks import WriteLock
from streams.errors import Broken, Busy, Exhausted, HeadraceError, Unreachable, Usage

LAYOUT = 1
OFFSET_BITS = 40
OFFSET_MASK = (1 << OFFSET_BITS) - 1

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE tick (one INTEGER PRIMARY KEY CHECK (one = 1), n INTEGER NOT NULL, settled INTEGER NOT NULL);
INSERT INTO tick VALUES (1, 0, 0);
CREATE TABLE topic (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, uid TEXT NOT NULL, partitions INTEGER NOT NULL,
    compacted INTEGER NOT NULL, retention_bytes INTEGER, max_message_bytes INTEGER NOT NULL);
CREATE TABLE part (
    id INTEGER PRIMARY KEY AUTOINCREMENT, topic INTEGER NOT NULL, p INTEGER NOT NULL, next INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0, clean INTEGER NOT NULL DEFAULT 0, UNIQUE (topic, p));
CREATE TABLE dropped (part INTEGER PRIMARY KEY);
CREATE TABLE seg (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, live INTEGER NOT NULL DEFAULT 0,
    dirty INTEGER NOT NULL DEFAULT 0);
CREATE TABLE msg (
    id INTEGER PRIMARY KEY, seg INTEGER, pos INTEGER, len INTEGER, digest INTEGER, hdr BLOB, key BLOB, data BLOB,
    cum INTEGER NOT NULL, compact INTEGER, died INTEGER);
CREATE INDEX msg_key ON msg (compact, key) WHERE compact IS NOT NULL;
CREATE INDEX msg_died ON msg (died) WHERE died IS NOT NULL;
CREATE TABLE producer (tid TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE grp (
    name TEXT PRIMARY KEY, gen INTEGER NOT NULL DEFAULT 0, seen_wall REAL NOT NULL, seen_boot REAL NOT NULL)
    WITHOUT ROWID;
CREATE TABLE member (
    id TEXT PRIMARY KEY, grp TEXT NOT NULL, beat REAL NOT NULL, timeout_s REAL NOT NULL, topics TEXT NOT NULL)
    WITHOUT ROWID;
CREATE TABLE assign (
    grp TEXT NOT NULL, part INTEGER NOT NULL, member TEXT NOT NULL, epoch INTEGER NOT NULL, PRIMARY KEY (grp, part))
    WITHOUT ROWID;
CREATE TABLE offs (
    grp TEXT NOT NULL, part INTEGER NOT NULL, off INTEGER NOT NULL, meta TEXT NOT NULL, PRIMARY KEY (grp, part))
    WITHOUT ROWID;
"""

_FULL_CODES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE}
_READ_ONLY_CODES = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}
_BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def msg_id(part: int, offset: int) -> int:
    """Row id of a message: messages of a partition lie side by side, in order."""
    return (part << OFFSET_BITS) | min(max(offset, 0), OFFSET_MASK)


class Index:
    """Connections to ``log.db`` of one process: one that writes, one that reads, one that beats.

    Args:
        directory: of the log.
        lock: held around everything that writes.
        synchronous: SQLite's setting of the writing connection, ``NORMAL`` or ``FULL``.
    """

    def __init__(self, directory: Path, lock: WriteLock, synchronous: str) -> None:
        self.path = directory / "log.db"
        self.lock = lock
        self._reading = threading.RLock()
        with lock, translated(str(self.path)):
            self._writer = self._connect(synchronous)
            self._create_tables()
            # Heartbeats need no disk: without this each of them would be an fsync of a durable log.
            self._beater = self._connect("NORMAL") if synchronous == "FULL" else self._writer
            self._reader = self._connect("NORMAL")
            self._reader.execute("PRAGMA query_only=1")

    def _connect(self, synchronous: str) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
        for pragma in (
            "journal_mode=WAL",
            f"synchronous={synchronous}",
            "wal_autocheckpoint=1000",
            "journal_size_limit=67108864",
            "cache_size=-16384",
            "trusted_schema=0",
        ):
            db.execute(f"PRAGMA {pragma}").fetchall()
        return db

    def _create_tables(self) -> None:
        if self._writer.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            return
        self._writer.executescript("BEGIN IMMEDIATE;" + _TABLES + "COMMIT;")

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A write transaction under the write lock; rolled back on an exception. Do not nest."""
        with self.lock, translated(str(self.path)), _transaction(self._writer) as db:
            yield db

    @contextmanager
    def beat(self) -> Iterator[sqlite3.Connection]:
        """As ``write``, for what need not survive a loss of power."""
        with self.lock, translated(str(self.path)), _transaction(self._beater) as db:
            yield db

    def begin(self) -> sqlite3.Connection:
        """Start a write transaction by hand; the caller holds the lock and ends it (``Producer.commit``)."""
        if self._writer.in_transaction:
            # An earlier COMMIT failed in the middle and left its transaction.
            self._writer.execute("ROLLBACK")
        self._writer.execute("BEGIN IMMEDIATE")
        return self._writer

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One snapshot. Fetch everything inside and leave quickly: an open snapshot holds up the checkpoint."""
        with self._reading, translated(str(self.path)):
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                self._reader.execute("COMMIT")

    def version(self) -> int:
        """Another number after each commit of anybody, beats included. Reads no page: for looks that find nothing."""
        with self._reading, translated(str(self.path)):
            return self._reader.execute("PRAGMA data_version").fetchone()[0]

    def tick(self) -> int:
        """Counts what became visible."""
        with self._reading, translated(str(self.path)):
            return self._reader.execute("SELECT n FROM tick").fetchone()[0]

    def close(self) -> None:
        """Close the connections. The last one of all processes makes a checkpoint: hence under the lock."""
        with self.lock, self._reading:
            self._reader.close()
            if self._beater is not self._writer:
                self._beater.close()
            self._writer.close()


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    if db.in_transaction:
        db.execute("ROLLBACK")
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        roll_back(db)
        raise


def roll_back(db: sqlite3.Connection) -> None:
    """Undo, also where SQLite has done so by itself after an error."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def next_tick(db: sqlite3.Connection) -> int:
    """Mark that something becomes visible with this transaction."""
    return db.execute("UPDATE tick SET n = n + 1 RETURNING n").fetchall()[0][0]


def settle(db: sqlite3.Connection) -> None:
    """A real change, for who is about to conclude from "it is not there".

    A writer killed inside COMMIT leaves a complete commit in the WAL which living processes do not see, but which comes
    back once all have died. The next commit that changes a page writes over it. (``SET n = n`` would change none.)
    """
    db.execute("UPDATE tick SET settled = settled + 1")


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Turn errors of SQLite and of the file system into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _from_sqlite(error, where) from error
    except OSError as error:
        raise from_os(error, where) from error


def from_os(error: OSError, where: str) -> HeadraceError:
    """Our error for one of the file system."""
    if error.errno in _FULL_ERRNOS:
        return disk_full(where, os.strerror(error.errno or 0))
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return read_only(where, os.strerror(error.errno or 0))
    return Unreachable(
        expected="a file system that works", got=str(error), where=where, do="Check the disk and its mount, then retry."
    )


def _from_sqlite(error: sqlite3.Error, where: str) -> HeadraceError:
    code = getattr(error, "sqlite_errorcode", 0)
    if code in _FULL_CODES:
        return disk_full(where, str(error))
    if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Broken(
            expected="the index of a log",
            got=str(error),
            where=where,
            do="Restore the log's folder from a copy, or remove it and read the files again.",
        )
    if code & 0xFF in _READ_ONLY_CODES:
        return read_only(where, str(error))
    if code & 0xFF in _BUSY_CODES:
        return Busy(expected="the index to be free", got=str(error), where=where, do="Try again.")
    return Unreachable(expected="an index that answers", got=str(error), where=where, do="Check the disk, then retry.")


def disk_full(where: str, got: str) -> Exhausted:
    """No room: nothing of the transaction stays."""
    return Exhausted(
        expected="room on the disk of the log",
        got=got,
        where=where,
        do="Free some space; the transaction was not made, and the log is usable as soon as there is room.",
    )


def read_only(where: str, got: str) -> Usage:
    """The folder does not let us write; also readers must (locks, shared memory of the index)."""
    return Usage(
        expected="a log folder that may be written",
        got=got,
        where=where,
        do="Change its owner or mode, or choose another folder for the log.",
    )
