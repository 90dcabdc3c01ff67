"""Parquet: split by row group, read in bounded batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.feed import Feed
from ingest.contracts import Config
from ingest.errors import FileRejected
from ingest.formats.reading import FilePlan, Part, Range, typed
from ingest.records import Split
from ingest.sources import Folder, FoundFile
from ingest.verdicts import times_us


class ParquetFormat:
    """``Format`` of Apache Parquet."""

    def __init__(self, feed: Feed, config: Config) -> None:
        self._feed, self._config = feed, config

    def plan(self, folder: Folder, file: FoundFile) -> FilePlan:
        """Row groups put together up to ``split_bytes``; bounds from their statistics."""
        with folder.open(file.path) as handle:
            metadata = self._open(handle).metadata
            ranges, begin, first, size, rows = [], 0, 0, 0, 0
            for group in range(metadata.num_row_groups):
                about = metadata.row_group(group)
                if size and size + about.total_byte_size > self._config.split_bytes:
                    ranges.append(Range(begin, group, first))
                    begin, first, size = group, rows, 0
                size += about.total_byte_size
                rows += about.num_rows
            ranges.append(Range(begin, metadata.num_row_groups, first))
            lo, hi = self._bounds(metadata)
        return FilePlan(tuple(ranges), lo, hi, judged_by_rows=lo is None)

    def read(self, folder: Folder, split: Split, resume: Mapping[str, Any] | None) -> Iterator[Part]:
        """Batches of at most ``part_rows``."""
        with folder.open(split.file) as handle:
            parquet = self._open(handle)
            sources = self._sources(parquet.schema_arrow, split.file)
            groups, row = range(split.begin, split.end), split.first_row
            start = int((resume or {}).get("row", row))
            while groups and row + parquet.metadata.row_group(groups[0]).num_rows <= start:
                row += parquet.metadata.row_group(groups[0]).num_rows
                groups = groups[1:]
            wanted = [source for source in sources.values() if source is not None]
            batches = parquet.iter_batches(self._config.part_rows, list(groups), wanted, use_threads=False)
            for batch in self._guarded(batches, split):
                fresh = batch.slice(max(0, start - row))
                first, row = row + batch.num_rows - fresh.num_rows, row + batch.num_rows
                if fresh.num_rows:
                    yield self._part(split.file, fresh, sources, first)

    def _part(self, file: str, batch: pa.RecordBatch, sources: Mapping[str, str | None], first: int) -> Part:
        rows = np.arange(first, first + batch.num_rows)
        columns = {name: batch.column(source) if source is not None else None for name, source in sources.items()}
        cap = self._config.dead_letter_bytes

        def origin(at: int) -> tuple[int, bytes]:
            return -1, json.dumps(batch.slice(at, 1).to_pylist()[0], default=str).encode()[:cap]

        good, numbers, letters = typed(self._feed, file, columns, rows, origin)
        last = first + batch.num_rows
        return Part(good, numbers, letters, last, {"row": last}, batch.nbytes)

    def _open(self, handle: pa.NativeFile) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(handle, pre_buffer=False)
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, FileNotFoundError | PermissionError):
                raise
            raise FileRejected(
                "not-parquet", f"expected a parquet file with its footer, got: {_first_line(error)}"
            ) from error

    def _sources(self, schema: pa.Schema, file: str) -> dict[str, str | None]:
        """Declared name → name in the file; ``None`` for an optional column that is not there."""
        out: dict[str, str | None] = {}
        for name, column in self._feed.columns.items():
            source = self._feed.source_of(name)
            if source in schema.names:
                out[name] = source
            elif column.optional:
                out[name] = None
            else:
                detail = f"expected the column {source!r}, got {', '.join(schema.names)}"
                raise FileRejected("missing-column", f"{detail} (file {file})")
        return out

    def _bounds(self, metadata: pq.FileMetaData) -> tuple[int | None, int | None]:
        """(min, max) of event time over row groups with rows, if every one of them has statistics."""
        event_time = self._feed.event_time
        if event_time is None:
            return None, None
        source = self._feed.source_of(event_time.column)
        names = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        if source not in names or self._feed.columns[event_time.column].type == "string":
            return None, None
        lows, highs = [], []
        for group in range(metadata.num_row_groups):
            about = metadata.row_group(group)
            if not about.num_rows:
                continue
            statistics = about.column(names.index(source)).statistics
            if statistics is None or not statistics.has_min_max:
                return None, None
            lows.append(statistics.min)
            highs.append(statistics.max)
        return self._as_us(lows, min), self._as_us(highs, max)

    def _as_us(self, values: list[Any], pick: Any) -> int | None:
        event_time = self._feed.event_time
        assert event_time is not None
        if not values:
            return None
        from ingest.conversion import convert

        declared = self._feed.columns[event_time.column].type
        done = convert(pa.array(values), declared, zone=event_time.zone)
        times, usable = times_us(done.column, event_time)
        return int(pick(times)) if usable.all() and not done.bad_N.any() else None

    def _guarded(self, batches: Iterator[pa.RecordBatch], split: Split) -> Iterator[pa.RecordBatch]:
        row = split.first_row
        while True:
            try:
                batch = next(batches)
            except StopIteration:
                return
            except (pa.ArrowException, OSError) as error:
                raise FileRejected(
                    "damaged-parquet", f"reading failed: {_first_line(error)} (file {split.file})", row=row
                ) from error
            row += batch.num_rows
            yield batch


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
