"""Parquet: row groups, bounds, types, damage."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.feed import Feed
from ingest.contracts import Config
from ingest.formats.build import format_of
from ingest.formats.reading import Start
from ingest.sources import Folder
from tests.ingest.world import Read, split_of, write


def feed(columns: dict[str, Any], **event_time: Any) -> Feed:
    more: dict[str, Any] = {"event_time": {"column": "t", **event_time}} if "t" in columns else {"snapshot": True}
    return Feed.model_validate(
        {"feed": "f", "files": {"url": "."}, "format": "parquet", "columns": columns, "key": [next(iter(columns))]}
        | more
    )


def save(folder: Path, table: pa.Table, **options: Any) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "a.parquet", **options)


def test_row_groups_part_sizes_and_resuming_change_nothing(tmp_path: Path) -> None:
    table = pa.table({"k": range(100), "s": [f"v{i}" for i in range(100)], "l": [[i] * (i % 3) for i in range(100)]})
    spec = feed({"k": "int64", "s": "string", "l": "list<int64>"})
    for groups, split_bytes, rows in ((100, 10**9, 1000), (7, 1, 3), (30, 10**9, 8), (10, 500, 100)):
        save(tmp_path, table, row_group_size=groups)
        config = Config(split_bytes=split_bytes, part_rows=rows)
        whole = Read(spec, tmp_path, "a.parquet", config)
        assert whole.rows == dict(enumerate(table.to_pylist()))
        assert not whole.letters
        assert whole.next_row == 100
        source = Folder(str(tmp_path))
        file, how = source.stat("a.parquet"), format_of(spec, config)
        assert file is not None
        for part in whole.ranges:
            parts = list(how.read(source, split_of(file, part), None))
            for number, done in enumerate(parts):
                rest = list(how.read(source, split_of(file, part), done.resume))
                assert [r for p in rest for r in p.rows_N] == [r for p in parts[number + 1 :] for r in p.rows_N]


def plan(
    tmp_path: Path, times: pa.Array, declared: str, limit_us: int = 2**61, start: Start | None = None, **options: Any
) -> Any:
    event_time = {key: options.pop(key) for key in ("unit", "zone") if key in options}
    save(tmp_path, pa.table({"k": pa.array(range(len(times))), "t": times}), **options)
    source = Folder(str(tmp_path))
    file = source.stat("a.parquet")
    assert file is not None
    how = format_of(feed({"k": "int64", "t": declared}, **event_time), Config(split_bytes=1))
    return how.plan(source, file, start or Start(), limit_us)


def test_bounds_come_from_statistics_and_rise(tmp_path: Path) -> None:
    found = plan(tmp_path, pa.array([50, 60, 10, 20, 70, 80, None, None]), "int64", row_group_size=2)
    assert [part.lo for part in found.ranges] == [10_000_000, 10_000_000, 70_000_000, None]
    assert (found.hi, found.judged_by_rows) == (80_000_000, False)
    assert [part.first_row for part in found.ranges] == [0, 2, 4, 6]
    rest = plan(tmp_path, pa.array([50, 60, 10, 20, 70, 80]), "int64", start=found.ranges[1].next, row_group_size=2)
    assert [(part.begin, part.first_row, part.lo) for part in rest.ranges] == [(2, 4, 70_000_000)]


def test_bounds_that_tell_nothing(tmp_path: Path) -> None:
    assert plan(tmp_path, pa.array([5, 9]), "int64", write_statistics=False).judged_by_rows
    assert plan(tmp_path, pa.array(["5", "10"]), "float64").judged_by_rows
    far = plan(tmp_path, pa.array([10**10, 10**10]), "int64", limit_us=2 * 10**15)
    assert far.ranges[0].lo is None
    one = plan(tmp_path, pa.array([7, 10**10]), "int64", limit_us=2 * 10**15)
    assert (one.ranges[0].lo, one.judged_by_rows) == (7_000_000, False)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_every_unit(tmp_path: Path, unit: str) -> None:
    moment = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    times = pa.array([moment, moment + dt.timedelta(hours=1)]).cast(pa.timestamp(unit, "Asia/Tokyo"))
    found = plan(tmp_path, times, "timestamp")
    assert (found.ranges[0].lo, found.hi) == (int(moment.timestamp()) * 10**6, int(moment.timestamp() + 3600) * 10**6)
    naive = pa.array([moment.replace(tzinfo=None)]).cast(pa.timestamp(unit))
    assert plan(tmp_path, naive, "timestamp", zone="Asia/Shanghai").hi == (int(moment.timestamp()) - 8 * 3600) * 10**6


@pytest.mark.parametrize(
    ("values", "declared", "reason"),
    [
        (pa.array([[1]]), "int64", "wrong-type"),
        (pa.array([1]), "string", "wrong-type"),
        (pa.array([dt.datetime(2024, 1, 1)]), "timestamp", "wrong-type"),
        (pa.array([True]), "float32", "wrong-type"),
    ],
)
def test_types_that_never_fit_reject_the_file(tmp_path: Path, values: pa.Array, declared: str, reason: str) -> None:
    save(tmp_path, pa.table({"k": [1], "c": values}))
    got = Read(feed({"k": "int64", "c": declared}), tmp_path, "a.parquet")
    assert got.rejected is not None
    assert got.rejected.reason == reason
    assert "column c" in got.rejected.detail
    assert not got.rows


def test_values_that_do_not_fit_reject_their_rows(tmp_path: Path) -> None:
    save(tmp_path, pa.table({"k": [1, 2, 3], "c": [1.0, 1.5, None]}))
    got = Read(feed({"k": "int64", "c": "int64"}), tmp_path, "a.parquet")
    assert got.rows == {0: {"k": 1, "c": 1}, 2: {"k": 3, "c": None}}
    assert got.reasons == {1: "bad-value"}
    assert b'"c": 1.5' in got.letters[0].raw


def test_damage_inside_keeps_what_was_read(tmp_path: Path) -> None:
    save(tmp_path, pa.table({"k": range(3000)}), row_group_size=1000, compression="none", use_dictionary=False)
    path = tmp_path / "a.parquet"
    data = bytearray(path.read_bytes())
    at = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    data[at : at + 16] = b"\xff" * 16
    path.write_bytes(bytes(data))
    got = Read(feed({"k": "int64"}), tmp_path, "a.parquet", Config(part_rows=1000))
    assert got.rejected is not None
    assert (got.rejected.reason, got.rejected.row) == ("damaged-parquet", 1000)
    assert sorted(got.rows) == list(range(1000))


def test_many_chunks_in_one_row_group(tmp_path: Path) -> None:
    rows = [[f"{i}-{j}" * 20 for j in range(i % 5)] for i in range(4000)]
    save(tmp_path, pa.table({"k": range(4000), "l": pa.array(rows, pa.list_(pa.string()))}), row_group_size=4000)
    got = Read(feed({"k": "int64", "l": "list<string>"}), tmp_path, "a.parquet", Config(part_rows=999))
    assert [got.rows[i]["l"] for i in range(4000)] == rows


def test_not_parquet(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", b"k\n1\n")
    got = Read(feed({"k": "int64"}), tmp_path, "a.parquet")
    assert got.rejected is not None
    assert got.rejected.reason == "not-parquet"
