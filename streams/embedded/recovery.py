"""Loss of power: making all durable on request, and looking for damage after the machine was started anew."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import xxhash

from streams.embedded.index import OFFSET_BITS, OFFSET_MASK, Index, translated
from streams.embedded.locks import boot_id
from streams.embedded.segments import Segments
from streams.errors import Broken

CHECKED_BYTES = 256 * 1024 * 1024
CHECKED_ROWS = 1000


def sync(directory: Path, index: Index) -> None:
    """Flush every segment with committed rows that was not flushed since, then the index."""
    with index.read() as db:
        tick = db.execute("SELECT n FROM tick").fetchone()[0]
        names = db.execute("SELECT name FROM seg WHERE dirty > 0 AND dirty <= ?", (tick,)).fetchall()
    for (name,) in names:
        flush(directory / "seg" / name)
    flush(directory / "seg")
    with index.write() as db:
        db.execute("UPDATE seg SET dirty = 0 WHERE dirty <= ?", (tick,))
    # Under the lock nobody starts the WAL anew. Only log.db itself and its -shm carry SQLite's locks, which closing
    # a descriptor of theirs would drop: they are never opened here.
    with index.lock:
        flush(index.path.with_name("log.db-wal"))
    flush(directory)


def flush(path: Path) -> None:
    """Flush a file or a folder to the disk, if it is there."""
    with translated(str(path)):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # removed since: nothing points into it
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def check_boot(directory: Path, index: Index, stored: str) -> None:
    """If the machine was started since the log was last opened, check the newest values, then note the new start.

    Raises:
        Broken: a row points at bytes that never reached the disk.
    """
    now = boot_id()
    if stored == now:
        return
    if stored:
        segments = Segments(directory, index)
        with index.read() as db:
            newest = _newest(db)
        left = CHECKED_BYTES
        for row, segment, position, length, digest in newest:
            left -= length
            if left < 0:
                break
            value = segments.view(segment, position, length)
            if value is None or xxhash.xxh3_64_intdigest(value) != digest & (2**64 - 1):
                raise _lost(directory, row)
    with index.write() as db:
        db.execute("UPDATE meta SET value = ? WHERE name = 'boot'", (now,))


def _newest(db: sqlite3.Connection) -> list[tuple[int, int, int, int, int]]:
    """The last rows of every partition that lie in segments, newest segments first."""
    rows = []
    for (part,) in db.execute("SELECT id FROM part").fetchall():
        rows += db.execute(
            "SELECT id, seg, pos, len, digest FROM msg WHERE id >= ? AND id < ? AND seg IS NOT NULL "
            "ORDER BY id DESC LIMIT ?",
            (part << OFFSET_BITS, (part + 1) << OFFSET_BITS, CHECKED_ROWS),
        ).fetchall()
    return sorted(rows, key=lambda row: (-row[1], -row[2]))


def _lost(directory: Path, row: int) -> Broken:
    return Broken(
        expected="the values that were committed before the machine stopped",
        got=f"other bytes at offset {row & OFFSET_MASK} of partition {row >> OFFSET_BITS}",
        where=str(directory),
        do="Remove the log's folder and read the files again; durability 'power' avoids this.",
    )
