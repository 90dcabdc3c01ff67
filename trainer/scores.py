"""Score files: event time, label and score of each trained row, in trained order, scored *before* it was trained.

They belong to the checkpoint: each checkpoint's folder has all chunks, hard-linked from the one before where they did not
change. Chunks are merged as they age (each at least twice the next), so that there are few, and each row is rewritten
seldom. The oldest chunks go when more than ``keep_rows`` rows are there.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from preprocess.contracts import Float32, Int64
from trainer.metrics import Part

SCHEMA = pa.schema([("event_time", pa.int64()), ("label", pa.float32()), ("score", pa.float32())])
FOLDER = "scores"


class Chunk(NamedTuple):
    """A score file: its name in the folder ``scores``, the number of its first row, its rows."""

    file: str
    first: int
    rows: int


class ScoreLog:
    """Rows scored over the life of a version: chunks on disk, and the rows since the last checkpoint in memory."""

    def __init__(self, keep_rows: int) -> None:
        self._keep_rows = keep_rows
        self._chunks: tuple[Chunk, ...] = ()
        self._folder: Path | None = None
        self._pending: list[Part] = []
        self._stored_rows = 0
        self.rows = 0

    @property
    def first(self) -> int:
        """Number of the first row that is kept; above 0 once rows were dropped."""
        return self._chunks[0].first if self._chunks else self._stored_rows

    def add(self, times_B: Int64, labels_B: Float32, scores_B: Float32) -> None:
        """Append the rows of a step. The arrays are kept, not copied."""
        self._pending.append((times_B, labels_B, scores_B))
        self.rows += len(times_B)

    def load(self, checkpoint: Path, chunks: Sequence[Chunk], rows: int) -> None:
        """Go on from a checkpoint whose files were verified."""
        self._folder, self._chunks, self._pending = checkpoint / FOLDER, tuple(chunks), []
        self.rows = self._stored_rows = rows

    def write(self, checkpoint: Path) -> tuple[Chunk, ...]:
        """Put all chunks into the new checkpoint's folder ``scores``; files are new and not synced, or links to synced
        ones. Nothing counts until ``committed``."""
        folder = checkpoint / FOLDER
        folder.mkdir()
        old = list(self._chunks)
        fresh: list[Chunk] = []
        if self._pending:
            fresh.append(self._merge(old, folder))
        kept = _newest([*old, *fresh], self._keep_rows)
        for chunk in old:
            if chunk in kept:
                assert self._folder is not None
                _link(self._folder / chunk.file, folder / chunk.file)
        return tuple(kept)

    def committed(self, checkpoint: Path, chunks: Sequence[Chunk]) -> None:
        """The checkpoint is durable: forget the rows in memory."""
        self.load(checkpoint, chunks, self.rows)

    def parts(self) -> Iterator[Part]:
        """All kept rows in trained order."""
        for chunk in self._chunks:
            assert self._folder is not None
            yield read_chunk(self._folder / chunk.file)
        if self._pending:
            yield _joined(self._pending)

    def _merge(self, old: list[Chunk], folder: Path) -> Chunk:
        """Write the pending rows as one chunk, together with old ones (removed from ``old``) that are not much larger."""
        first, parts = self._stored_rows, [_joined(self._pending)]
        rows = len(parts[0][0])
        largest = max(1, self._keep_rows // 8)
        while old and old[-1].rows < 2 * rows and old[-1].rows + rows <= largest:
            chunk = old.pop()
            assert self._folder is not None
            parts.insert(0, read_chunk(self._folder / chunk.file))
            first, rows = chunk.first, rows + chunk.rows
        chunk = Chunk(f"{first:012d}-{rows}.arrow", first, rows)
        write_chunk(folder / chunk.file, parts)
        return chunk


def write_chunk(path: Path, parts: Sequence[Part]) -> None:
    """One Arrow IPC file; not synced."""
    arrays = [pa.array(np.concatenate(column)) for column in zip(*parts, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_batch(batch)


def read_chunk(path: Path) -> Part:
    """Columns of a score file, as views into the mapped file."""
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    times, labels, scores = (table.column(name).combine_chunks() for name in SCHEMA.names)
    return times.to_numpy(), labels.to_numpy(), scores.to_numpy()


def _joined(parts: Sequence[Part]) -> Part:
    times, labels, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    return times, labels, scores


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
