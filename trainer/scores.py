"""Score files: event time, label and score of each trained row, in trained order, scored *before* it was trained.

They belong to the checkpoint: each checkpoint's folder has all chunks, hard-linked from the one before where they did not
change. Chunks are merged as they age (each at least twice the next), so that there are few, and each row is rewritten
seldom. The oldest chunks go when more than ``keep_rows`` rows are there.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

from preprocess.contracts import Float32, Int64
from streams.errors import Exhausted
from trainer.metrics import PIECE_ROWS, Part, joined, pieces

SCHEMA = pa.schema([("event_time", pa.int64()), ("label", pa.float32()), ("score", pa.float32())])
ROW = np.dtype([("event_time", "<i8"), ("label", "<f4"), ("score", "<f4")])
FOLDER = "scores"


class Chunk(NamedTuple):
    """A score file: its name in the folder ``scores``, the number of its first row, its rows."""

    file: str
    first: int
    rows: int


class Pending:
    """Rows that are in no checkpoint yet, in trained order: at most ``PIECE_ROWS`` of them in memory, those before in a file
    without a name, which goes with the process."""

    def __init__(self, folder: Path) -> None:
        """``folder``: on the disk of the checkpoints; it need not exist before rows are many."""
        self._folder = folder
        self._file: BinaryIO | None = None
        self._written = 0
        self._parts: list[Part] = []
        self._in_memory = 0

    def __len__(self) -> int:
        return self._written + self._in_memory

    def add(self, part: Part) -> None:
        """Append; the arrays are kept, not copied. Raises ``Exhausted`` where the disk is full."""
        self._parts.append(part)
        self._in_memory += len(part[0])
        if self._in_memory >= PIECE_ROWS:
            self._spill()

    def parts(self) -> Iterator[Part]:
        """All rows, in parts of about ``PIECE_ROWS``."""
        for start in range(0, self._written, PIECE_ROWS):
            assert self._file is not None
            rows = min(PIECE_ROWS, self._written - start)
            content = os.pread(self._file.fileno(), rows * ROW.itemsize, start * ROW.itemsize)
            rows_N = np.frombuffer(content, ROW)
            assert len(rows_N) == rows, (len(rows_N), rows)
            times, labels, scores = (np.ascontiguousarray(rows_N[name]) for name in SCHEMA.names)
            yield times, labels, scores
        if self._parts:
            yield joined(self._parts)

    def clear(self) -> None:
        """Forget all rows."""
        if self._file:
            self._file.close()
        self._file, self._written = None, 0
        self._parts, self._in_memory = [], 0

    def _spill(self) -> None:
        rows_N = np.empty(self._in_memory, ROW)
        for name, values in zip(SCHEMA.names, joined(self._parts), strict=True):
            rows_N[name] = values
        try:
            if self._file is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
            self._file.write(rows_N.tobytes())
            self._file.flush()
        except OSError as error:
            raise Exhausted(
                expected="room for the scores since the last checkpoint (16 bytes a row)",
                got=error.strerror or str(error),
                where=str(self._folder),
                do="Free space on the disk of the checkpoints. Nothing is lost: training goes on from the newest checkpoint"
                " when it starts again.",
            ) from error
        self._written += len(rows_N)
        self._parts, self._in_memory = [], 0


class ScoreLog:
    """Rows scored over the life of a version: chunks on disk, and the rows since the last checkpoint.

    Args:
        keep_rows: at least so many rows are kept once there are more. folder: where rows go that wait for a checkpoint.
    """

    def __init__(self, keep_rows: int, folder: Path) -> None:
        self._keep_rows = keep_rows
        self._chunks: tuple[Chunk, ...] = ()
        self._folder: Path | None = None
        self._pending = Pending(folder)
        self._stored_rows = 0
        self.rows = 0

    @property
    def first(self) -> int:
        """Number of the first row that is kept; above 0 once rows were dropped."""
        return self._chunks[0].first if self._chunks else self._stored_rows

    def add(self, times_B: Int64, labels_B: Float32, scores_B: Float32) -> None:
        """Append the rows of a step. The arrays are kept, not copied. Raises ``Exhausted`` where the disk is full."""
        self._pending.add((times_B, labels_B, scores_B))
        self.rows += len(times_B)

    def load(self, checkpoint: Path, chunks: Sequence[Chunk], rows: int) -> None:
        """Go on from a checkpoint whose files were verified."""
        self._folder, self._chunks = checkpoint / FOLDER, tuple(chunks)
        self._pending.clear()
        self.rows = self._stored_rows = rows

    def write(self, checkpoint: Path) -> tuple[Chunk, ...]:
        """Put all chunks into the new checkpoint's folder ``scores``; files are new and not synced, or links to synced
        ones. Nothing counts until ``committed``."""
        folder = checkpoint / FOLDER
        folder.mkdir()
        old = list(self._chunks)
        fresh = [self._merge(old, folder)] if len(self._pending) else []
        kept = _newest([*old, *fresh], self._keep_rows)
        for chunk in old:
            if chunk in kept:
                assert self._folder is not None
                _link(self._folder / chunk.file, folder / chunk.file)
        return tuple(kept)

    def committed(self, checkpoint: Path, chunks: Sequence[Chunk]) -> None:
        """The checkpoint is durable: forget the rows that waited for it."""
        self.load(checkpoint, chunks, self.rows)

    def parts(self) -> Iterator[Part]:
        """All kept rows in trained order."""
        return self._parts_from(self._chunks)

    def _parts_from(self, chunks: Sequence[Chunk]) -> Iterator[Part]:
        if chunks:
            assert self._folder is not None
            yield from read_chunks(self._folder, chunks)
        yield from self._pending.parts()

    def _merge(self, old: list[Chunk], folder: Path) -> Chunk:
        """Write the pending rows as one chunk, together with old ones (removed from ``old``) that are not much larger."""
        first, rows, merged = self._stored_rows, len(self._pending), len(old)
        largest = max(1, self._keep_rows // 8)
        while merged and old[merged - 1].rows < 2 * rows and old[merged - 1].rows + rows <= largest:
            merged -= 1
            first, rows = old[merged].first, rows + old[merged].rows
        chunk = Chunk(f"{first:012d}-{rows}.arrow", first, rows)
        write_chunk(folder / chunk.file, self._parts_from(old[merged:]), first)
        del old[merged:]
        return chunk


def write_chunk(path: Path, parts: Iterable[Part], first: int) -> None:
    """One Arrow IPC file of rows from number ``first`` on, in batches that end at multiples of ``PIECE_ROWS``; not synced."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for part in pieces(parts, first):
            writer.write_batch(pa.RecordBatch.from_arrays([pa.array(column) for column in part], schema=SCHEMA))


def read_chunks(folder: Path, chunks: Iterable[Chunk]) -> Iterator[Part]:
    """Rows of score files in the folder ``scores`` of a checkpoint, as views into the mapped files."""
    for chunk in chunks:
        with pa.memory_map(str(folder / chunk.file)) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                times, labels, scores = reader.get_batch(number).columns
                yield times.to_numpy(), labels.to_numpy(), scores.to_numpy()


def _newest(chunks: list[Chunk], keep_rows: int) -> list[Chunk]:
    """Without the oldest chunks that are not needed for ``keep_rows`` rows."""
    rows = sum(chunk.rows for chunk in chunks)
    start = 0
    while start < len(chunks) and rows - chunks[start].rows >= keep_rows:
        rows -= chunks[start].rows
        start += 1
    return chunks[start:]


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.ENOTSUP):
            raise
        shutil.copyfile(source, target)  # a file system without hard links
