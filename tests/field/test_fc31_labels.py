"""Field case 31: labels of 2, −1, NaN and nothing give a plausible loss elsewhere. Here such a row never reaches a batch."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import names
from experiments.experiment import ColumnLabel
from experiments.publishing import view_topics
from experiments.view import View
from ingest.contracts import Config as IngestConfig
from preprocess.contracts import JOINED, Config, joined_schema
from preprocess.join.worker import JoinWorker
from preprocess.status import join_report
from streams.clock import SettableClock
from streams.contracts import Log
from streams.dead_letters import unpack_letters
from streams.packed import Limits, kind_of, unpack
from streams.tail import read_to_end
from tests.ingest.world import Ingest, feed_of, letters, write

VALUES = ["0", "1", "2", "-1", "NaN", "", "inf", "0.5"]


def labelled(
    log: Log, folder: Path, kind: str, rule: ColumnLabel, values: list[str]
) -> tuple[dict[int, float], dict[int, str], int]:
    """(row → label, row → what its letter says, rows that ingest kept back already)."""
    write(folder / "in/a.csv", "t,k,y\n" + "".join(f"{10**9 + n},{n},{y}\n" for n, y in enumerate(values)))
    ingest = Ingest(log, feed_of(folder / "in", {"t": "float64", "k": "int64", "y": kind}), IngestConfig(listing_s=0.0))
    ingest.finish()
    ingest.close()
    view = View(ingest.feed, (), (("y", rule),))
    for spec in view_topics(view):
        log.create_topic(spec)
    worker = JoinWorker(log, view, Config(), clock=SettableClock())
    while worker.step():
        pass
    worker.close()
    kept: dict[int, float] = {}
    for p in range(view.partitions):
        for record in read_to_end(log, names.joined(view.name), p):
            if kind_of(record) == JOINED:
                rows = unpack(record, kind=JOINED, schema=joined_schema(view), limits=Limits()).to_pylist()
                kept |= {row["__row"]: row["label.y"] for row in rows}
    found = [x for record in read_to_end(log, names.dead_letters(view.name), 0) for x in unpack_letters(record)]
    assert {(x.stage, x.reason, x.source) for x in found} <= {("join", "bad-label", "a.csv")}
    report = join_report(log, view)
    assert (sum(part.rows for part in report), sum(part.rejected for part in report)) == (len(kept), len(found))
    assert all(part.at_end for part in report)
    kept_back = len(letters(log, ingest.feed))
    assert len(kept) + len(found) + kept_back == len(values)
    return kept, {x.position: x.detail for x in found}, kept_back


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_column_as_it_is(log: Log, tmp_path: Path, kind: str) -> None:
    kept, said, _ = labelled(log, tmp_path, kind, ColumnLabel(column="y"), VALUES)
    assert kept == {0: 0.0, 1: 1.0}
    got = ["2", "-1", "nan", "null", "inf", "0.5"]
    assert said == {row: f"column y: expected 0 or 1, got {text}" for row, text in enumerate(got, 2)}


def test_integers_and_bools(log: Log, tmp_path: Path) -> None:
    kept, said, _ = labelled(log, tmp_path, "int64", ColumnLabel(column="y"), ["0", "1", "2", "-1", ""])
    assert kept == {0: 0.0, 1: 1.0}
    assert set(said) == {2, 3, 4}


def test_bools(log: Log, tmp_path: Path) -> None:
    kept, said, _ = labelled(log, tmp_path, "bool", ColumnLabel(column="y"), ["true", "false", ""])
    assert (kept, set(said)) == ({0: 1.0, 1: 0.0}, {2})


def test_ids_beyond_what_a_float_holds(log: Log, tmp_path: Path) -> None:
    big = 2**63
    rule = ColumnLabel(column="y", equals=1)
    kept, said, _ = labelled(log, tmp_path, "uint64", rule, [str(big), str(big + 1), "1", ""])
    assert (kept, set(said)) == ({0: 0.0, 1: 0.0, 2: 1.0}, {3})


def test_a_threshold_inside_a_range(log: Log, tmp_path: Path) -> None:
    kept, said, _ = labelled(log, tmp_path, "float64", ColumnLabel(column="y", at_least=1, range=(0, 2)), VALUES)
    assert kept == {0: 0.0, 1: 1.0, 2: 1.0, 7: 0.0}
    assert said[3] == "column y: expected a number in [0, 2], got -1"
    assert set(said) == {3, 4, 5, 6}


def test_a_threshold_without_range_still_wants_a_number(log: Log, tmp_path: Path) -> None:
    kept, said, _ = labelled(log, tmp_path, "float64", ColumnLabel(column="y", at_least=1), VALUES)
    assert kept == {0: 0.0, 1: 1.0, 2: 1.0, 3: 0.0, 7: 0.0}
    assert set(said) == {4, 5, 6}


def test_a_text(log: Log, tmp_path: Path) -> None:
    kept, said, kept_back = labelled(
        log, tmp_path, "string", ColumnLabel(column="y", equals="yes"), ["yes", "no", "YES", " yes"]
    )
    assert (kept, said, kept_back) == ({0: 1.0, 1: 0.0, 2: 0.0, 3: 0.0}, {}, 0)


def test_every_row_is_bad(log: Log, tmp_path: Path) -> None:
    kept, said, _ = labelled(log, tmp_path, "float64", ColumnLabel(column="y"), ["7"] * 500)
    assert (kept, len(said)) == ({}, 500)
