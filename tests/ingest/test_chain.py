"""Planner and readers together on the real log."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ingest.contracts import T_END, Config, Downstream
from ingest.status import FeedStatus
from streams.contracts import Log
from streams.embedded.log import open_log
from tests.ingest.world import Ingest, feed_of, jsons, late_rows, letters, raw_rows, write

COLUMNS = {"k": "int64", "t": "float64", "x": "string"}
SMALL = Config(part_rows=3, listing_s=0.0)


def csv(rows: list[tuple[object, object, object]]) -> str:
    return "k,t,x\n" + "".join(f"{k},{t},{x}\n" for k, t, x in rows)


def in_order_files(folder: Path, count: int, rows: int = 10) -> list[Path]:
    return [
        write(folder / f"part-{n}.csv", csv([(i, n * rows + i, f"v{n}-{i}") for i in range(rows)]))
        for n in range(count)
    ]


def test_each_row_once_with_its_number(log: Log, tmp_path: Path) -> None:
    in_order_files(tmp_path / "in", 4)
    ingest = Ingest(
        log, feed_of(tmp_path / "in", COLUMNS, files={"url": str(tmp_path / "in"), "order": "in_order"}), SMALL
    )
    ingest.finish()
    rows = raw_rows(log, ingest.feed)
    assert {key: row["x"] for key, row in rows.items()} == {
        (f"part-{n}.csv", i): f"v{n}-{i}" for n in range(4) for i in range(10)
    }
    assert rows["part-2.csv", 3]["__time"] == 23_000_000
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    assert (report.files, report.rows, report.used, report.late, report.rejected) == (4, 40, 40, 0, 0)
    assert report.closed
    assert report.W == T_END
    ingest.close()


def test_last_files_later_and_first_files_later(log: Log, tmp_path: Path) -> None:
    folder, away = tmp_path / "in", tmp_path / "away"
    files = in_order_files(folder, 6)
    away.mkdir()
    for file in files[4:]:
        file.rename(away / file.name)
    feed = feed_of(folder, COLUMNS, files={"url": str(folder), "order": "in_order"})
    ingest = Ingest(log, feed, SMALL)
    ingest.settle()
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    assert (report.used, report.calm, report.closed) == (40, True, False)
    assert report.W == 39_000_000
    for file in files[4:]:
        (away / file.name).rename(file)
    ingest.settle()
    write(folder / "part--1.csv", csv([(1, 2, "old"), (2, 100, "new")]))
    ingest.finish()
    assert late_rows(log, feed) == [("part--1.csv", 0)]
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    assert (report.files, report.used, report.late, report.late_files) == (7, 61, 1, 1)
    assert len(raw_rows(log, feed)) == 61
    ingest.close()


def save(path: Path, form: str, rows: list[tuple[object, object, object]], rng: random.Random) -> None:
    """A file of the rows, as text, as gzip, or in row groups of some size."""
    if form == "parquet":
        columns = [[value if value != "" else None for value in column] for column in zip(*rows, strict=True)] or [
            [],
            [],
            [],
        ]
        arrays = [pa.array(c, t) for c, t in zip(columns, (pa.int64(), pa.float64(), pa.string()), strict=True)]
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(dict(zip("ktx", arrays, strict=True))), sink, row_group_size=rng.randint(1, 9))
        write(path, sink.getvalue().to_pybytes())
    else:
        text = csv(rows).encode()
        write(path, gzip.compress(text) if form == "gz" else text)


@pytest.mark.parametrize("seed", range(40))
def test_any_schedule_of_planners_readers_and_deaths(log: Log, tmp_path: Path, seed: int) -> None:
    """Two planners, two readers, random restarts, files that come while it runs: the ledger is exact and W is kept."""
    rng = random.Random(seed)
    folder = tmp_path / "in"
    folder.mkdir()
    order, form = rng.choice(["any", "in_order"]), rng.choice(["csv", "gz", "parquet"])
    feed = feed_of(
        folder,
        COLUMNS,
        files={"url": str(folder), "order": order},
        disorder=rng.choice(["0s", "5s"]),
        file_disorder=rng.choice(["0s", "15s"]),
        format="parquet" if form == "parquet" else {"delimited": {}},
    )
    config = Config(
        part_rows=rng.choice([1, 3, 100]),
        part_bytes=rng.choice([40, 10**6]),
        split_bytes=rng.choice([1, 60, 10**6]),
        listing_s=0.0,
        open_splits=rng.choice([1, 2, 8]),
        ahead_us=rng.choice([1_000_000, 10**12]),
    )
    ingest = Ingest(log, feed, config, planners=2, readers=2)
    want: dict[tuple[str, int], str] = {}
    waiting = list(range(rng.randint(1, 6)))
    for turn in range(400):
        if waiting and rng.random() < 0.1:
            n = waiting.pop(0)
            rows: list[tuple[object, object, object]] = []
            for i in range(rng.randint(0, 12)):
                kind = rng.random()
                key = "" if kind < 0.05 else i
                time = "" if 0.05 < kind < 0.1 else n * 10 + i + rng.choice([0, -3, 4])
                rows.append((key, time, f"{n}.{i}"))
                want[f"p{n}", i] = f"{n}.{i}"
            save(folder / f"p{n}", form, rows, rng)
        at = rng.randrange(len(ingest.workers))
        ingest.workers[at].step()
        ingest.clock.advance(0.2)
        if rng.random() < 0.04:
            ingest.workers[at].close()
            ingest.workers[at] = ingest.planner() if at < 2 else ingest.reader()
        if not waiting and turn > 200 and rng.random() < 0.1:
            break
    for n in waiting:
        save(folder / f"p{n}", form, [(1, n * 10, f"{n}.0")], rng)
        want[f"p{n}", 0] = f"{n}.0"
    ingest.finish()
    rows_out = raw_rows(log, feed)
    late, dead = late_rows(log, feed), letters(log, feed)
    places = [*rows_out, *late, *[(x.source, x.position) for x in dead]]
    assert sorted(places) == sorted(want)
    assert {x.reason for x in dead} <= {"null-key", "bad-time"}
    assert all(row["x"] == want[key] for key, row in rows_out.items())
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    assert report.rows == len(want)
    assert (report.used, report.late, report.rejected) == (len(rows_out), len(late), len(dead))
    assert report.closed
    ingest.close()


@pytest.mark.parametrize("seed", range(6))
def test_same_files_new_plan_same_verdicts(log: Log, tmp_path: Path, seed: int) -> None:
    """In-order files that keep their order: the same rows are used and late however many run, whatever comes when."""
    rng = random.Random(seed)
    folder = tmp_path / "in"
    files = [
        [(i, n * 100 + i * 5 - (rng.choice([0, 0, 2, 30]) if i else 0), f"{n}.{i}") for i in range(12)]
        for n in range(5)
    ]
    feed = feed_of(folder, COLUMNS, files={"url": str(folder), "order": "in_order"}, disorder="4s")
    found = []
    for life in range(2):
        shelf = open_log(tmp_path / f"log{life}")
        ingest = Ingest(
            shelf, feed, Config(part_rows=rng.choice([1, 2, 5]), listing_s=0.0), planners=1 + life, readers=1 + life
        )
        for n, rows in enumerate(files):
            write(folder / f"p{n}.csv", csv(list(rows)))
            for _ in range(rng.choice([0, 40]) * life):
                ingest.workers[rng.randrange(len(ingest.workers))].step()
                ingest.clock.advance(0.3)
        ingest.finish()
        found.append((set(raw_rows(shelf, feed)), late_rows(shelf, feed)))
        ingest.close()
        shelf.close()
        if not life:
            for file in folder.iterdir():
                file.unlink()
    assert found[0] == found[1]
    assert found[0][1]


def test_of_a_large_file_W_rises_while_it_is_read(log: Log, tmp_path: Path) -> None:
    """Else the join would hold all of the file."""
    for form in ("csv", "parquet"):
        folder = tmp_path / form
        save(folder / "a", form, [(i, i * 10, "x" * 40) for i in range(300)], random.Random(1))
        feed = feed_of(folder, COLUMNS, feed=form, format=form if form == "parquet" else {"delimited": {}})
        ingest = Ingest(log, feed, Config(split_bytes=900, part_rows=10, listing_s=0.0, open_splits=2))
        ingest.finish()
        marks = [json["W"] for json in jsons(log, f"floor.{form}")]
        assert len(set(marks)) > 8
        assert len(raw_rows(log, feed)) == 300
        ingest.close()


def test_snapshots_close_by_themselves_and_count_what_comes_later(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    feed = feed_of(folder, {"k": "int64", "x": "string"}, snapshot=True)
    ingest = Ingest(log, feed, SMALL)
    ingest.settle()
    assert jsons(log, "floor.f") == [] or not jsons(log, "floor.f")[-1]["closed"]
    write(folder / "a.csv", "k,x\n1,a\n2,b\n,c\n")
    ingest.settle()
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    assert (report.closed, report.used, report.rejected, report.reasons) == (True, 2, 1, {"null-key": 1})
    write(folder / "b.csv", "k,x\n3,c\n")
    ingest.settle()
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    assert (report.used, report.files, report.late_files) == (2, 1, 1)
    ingest.close()


def test_planning_stops_while_a_group_is_behind(log: Log, tmp_path: Path) -> None:
    in_order_files(tmp_path / "in", 3, rows=200)
    feed = feed_of(tmp_path / "in", COLUMNS, files={"url": str(tmp_path / "in"), "order": "in_order"})
    ingest = Ingest(log, feed, Config(max_lag_bytes=100, listing_s=0.0))
    ingest.groups = [Downstream("join.v", "raw.f", 2)]
    ingest.settle()
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    assert report.files == 1
    assert "join.v" in report.waiting
    assert not report.calm
    ingest.groups = []
    ingest.finish()
    assert len(raw_rows(log, feed)) == 600
    ingest.close()


def test_files_that_hold_each_other_up_are_told_once_nothing_moves(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    in_order_files(folder, 2)
    feed = feed_of(folder, COLUMNS, files={"url": str(folder), "order": "in_order"})
    ingest = Ingest(log, feed, SMALL)
    status = FeedStatus(log, "f")
    said = []
    for _ in range(8):
        ingest.workers[0].step()  # the planner; nobody reads
        ingest.clock.advance(3.0)
        report = status.refresh()
        assert report is not None
        said.append(report.waiting)
    assert said[0] == ""
    assert "(files.order: in_order)" in said[-1]
    ingest.finish()
    report = status.refresh()
    assert report is not None
    assert (report.waiting, report.closed) == ("", True)
    status.close()
    ingest.close()


def test_a_clock_that_goes_back_changes_nothing(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    files = in_order_files(folder, 2)
    later = files[1].rename(tmp_path / "later")
    feed = feed_of(folder, COLUMNS, files={"url": str(folder), "order": "in_order"})
    ingest = Ingest(log, feed, SMALL)
    ingest.settle()
    ingest.clock.set_wall_us(ingest.clock.wall_us() - 3 * 3600 * 1_000_000)
    later.rename(files[1])
    ingest.finish()
    assert len(raw_rows(log, feed)) == 20
    ingest.close()
