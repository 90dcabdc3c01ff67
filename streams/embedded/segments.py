"""Files with the bytes of values: written by one process each, mapped by readers.

A segment is never truncated, written over or punched where a committed row pointed: readers hold views of it.
"""

from __future__ import annotations

import mmap
import os
import secrets
import threading
from collections import OrderedDict
from pathlib import Path

from streams.embedded.index import Index, translated
from streams.embedded.locks import create_with_flock, drop_flock

SEGMENT_BYTES = 64 * 1024 * 1024
PIECE_BYTES = 256 * 1024
"""Size of one write: with 1 MiB two writing processes fell to a sixth of their speed."""

ALIGN = 64
MAX_MAPS = 64


class SegmentWriter:
    """One file that this process appends to; its flock says that the owner lives.

    Attributes:
        id: row of the table ``seg``; never used again.
        committed: bytes up to here may be referenced by committed rows.
        tail: where the next value goes.
    """

    def __init__(self, segment_id: int, path: Path, fd: int, size: int) -> None:
        self.id = segment_id
        self.path = path
        self.size = size
        self.tail = 0
        self.committed = 0
        self._fd = fd

    def fits(self, length: int) -> bool:
        """Whether a value of this length still has room."""
        return self.tail + length <= self.size

    def append(self, value: memoryview) -> int:
        """Write a value; its position, a multiple of 64. Raises ``Exhausted`` when the disk is full."""
        position = self.tail
        with translated(str(self.path)):
            at = 0
            while at < len(value):
                at += os.pwrite(self._fd, value[at : at + PIECE_BYTES], position + at)
        self.tail = -(-(position + len(value)) // ALIGN) * ALIGN
        return position

    def sync(self) -> None:
        """What was appended survives a loss of power."""
        with translated(str(self.path)):
            os.fdatasync(self._fd)

    def forget(self) -> None:
        """Drop what was appended since the last ``keep``."""
        self.tail = self.committed

    def keep(self) -> None:
        """What was appended is committed."""
        self.committed = self.tail

    def close(self) -> None:
        """Release the file: from now on it may be removed once nothing points into it."""
        drop_flock(self._fd)


class Segments:
    """The folder ``seg`` of a log, seen from one process."""

    def __init__(self, directory: Path, index: Index) -> None:
        self.folder = directory / "seg"
        self._index = index
        self._maps: OrderedDict[int, mmap.mmap] = OrderedDict()
        self._guard = threading.Lock()

    def create(self, topic: str, length: int) -> SegmentWriter:
        """A new segment with room for at least one value of ``length`` bytes.

        File, flock and row are made under the write lock, so that the removal of orphans never meets a file whose
        flock is not yet held.
        """
        size = max(SEGMENT_BYTES, -(-length // ALIGN) * ALIGN)
        name = f"{topic}-{secrets.token_hex(8)}"
        path = self.folder / name
        with self._index.lock, translated(str(path)):
            fd = create_with_flock(path)
            try:
                os.ftruncate(fd, size)
                with self._index.write() as db:
                    row = db.execute("INSERT INTO seg (name) VALUES (?) RETURNING id", (name,)).fetchall()
            except BaseException:
                drop_flock(fd)
                path.unlink(missing_ok=True)
                raise
        return SegmentWriter(row[0][0], path, fd, size)

    def view(self, segment_id: int, position: int, length: int) -> memoryview | None:
        """A read-only view into the mapped file, or ``None`` if the file or the range is not there."""
        mapped = self._mapped(segment_id)
        if mapped is None or position + length > len(mapped):
            return None
        return memoryview(mapped)[position : position + length]

    def _mapped(self, segment_id: int) -> mmap.mmap | None:
        with self._guard:
            mapped = self._maps.get(segment_id)
            if mapped is not None:
                self._maps.move_to_end(segment_id)
                return mapped
            mapped = self._map(segment_id)
            if mapped is None:
                return None
            self._maps[segment_id] = mapped
            while len(self._maps) > MAX_MAPS:
                # Dropped, not closed: views that are still held keep the map alive.
                self._maps.popitem(last=False)
            return mapped

    def _map(self, segment_id: int) -> mmap.mmap | None:
        with self._index.read() as db:
            row = db.execute("SELECT name FROM seg WHERE id = ?", (segment_id,)).fetchone()
        if row is None:
            return None
        path = self.folder / row[0]
        with translated(str(path)):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                return mmap.mmap(fd, 0, access=mmap.ACCESS_READ) if os.fstat(fd).st_size else None
            finally:
                os.close(fd)

    def close(self) -> None:
        """Forget the maps."""
        with self._guard:
            self._maps.clear()
