"""Field case 27: a key that a side table has twice. The first row by (file, row) is used, the others are kept aside and counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import names
from experiments.feed import Feed
from experiments.publishing import feed_topics, view_topics
from experiments.view import LookupTable, View
from ingest.contracts import Config as IngestConfig
from preprocess.contracts import JOINED, Config, joined_schema
from preprocess.join.worker import JoinWorker
from streams.clock import SettableClock
from streams.contracts import Log
from streams.dead_letters import DeadLetter, unpack_letters
from streams.packed import Limits, kind_of, unpack
from streams.tail import read_to_end
from tests.ingest.world import Ingest, feed_of, write


def users(folder: Path, key: str) -> Feed:
    return Feed.model_validate(
        {
            "feed": "users", "files": {"url": str(folder), "match": "**/*.csv"}, "format": "delimited",
            "snapshot": True, "settle": "0s", "columns": {"user_id": key, "name": "string"}, "key": ["user_id"],
        }
    )  # fmt: skip


def drain(worker: JoinWorker) -> None:
    while worker.step():
        pass


def joined(log: Log, folder: Path, tables: dict[str, str], key: str = "int64") -> tuple[View, dict[str, str | None]]:
    """The view, and the name that each user's row got."""
    for path, text in tables.items():
        write(folder / "users" / path, text)
    write(folder / "in/s.csv", "t,k,u\n" + "".join(f"{n},{n},{u}\n" for n, u in enumerate((7, 8, 9, 10), 10**9)))
    sample = feed_of(folder / "in", {"t": "float64", "k": "int64", "u": key})
    view = View(sample, (LookupTable("user", users(folder / "users", key), "u"),), ())
    for feed in view.feeds:
        ingest = Ingest(log, feed, IngestConfig(listing_s=0.0))
        ingest.finish()
        ingest.close()
    for spec in view_topics(view):
        log.create_topic(spec)
    worker = JoinWorker(log, view, Config(), clock=SettableClock())
    drain(worker)
    worker.close()
    again = JoinWorker(log, view, Config(), clock=SettableClock())
    drain(again)  # says nothing twice
    again.close()
    found: dict[str, str | None] = {}
    for p in range(view.partitions):
        for record in read_to_end(log, names.joined(view.name), p):
            if kind_of(record) == JOINED:
                rows = unpack(record, kind=JOINED, schema=joined_schema(view), limits=Limits()).to_pylist()
                found |= {str(row["u"]): row["user.name"] for row in rows}
    return view, found


def side(log: Log, view: View) -> list[DeadLetter]:
    return [x for record in read_to_end(log, names.side(view.name), 0) for x in unpack_letters(record)]


@pytest.mark.parametrize("key", ["int64", "uint64", "string"])
def test_five_rows_two_equal_one_with_another_value(log: Log, tmp_path: Path, key: str) -> None:
    table = "user_id,name\n7,ann\n8,bob\n7,ann\n9,cid\n8,rob\n"
    view, found = joined(log, tmp_path, {"a.csv": table}, key)
    assert found == {"7": "ann", "8": "bob", "9": "cid", "10": None}
    letters = side(log, view)
    assert sorted((x.source, x.position) for x in letters) == [("users/a.csv", 2), ("users/a.csv", 4)]
    assert {x.reason for x in letters} == {"duplicate-key"}
    assert {x.detail for x in letters} == {"an earlier row of users has the same user_id; that one is used"}


def test_the_first_by_path_whatever_was_read_first(log: Log, tmp_path: Path) -> None:
    tables = {
        "b/1.csv": "user_id,name\n7,late\n9,cid\n",
        "a/2.csv": "user_id,name\n8,bob\n7,ann\n",
        "c.csv": "user_id,name\n7,no\n",
    }
    view, found = joined(log, tmp_path, tables)
    assert found == {"7": "ann", "8": "bob", "9": "cid", "10": None}
    assert sorted((x.source, x.position) for x in side(log, view)) == [("users/b/1.csv", 0), ("users/c.csv", 0)]


def test_one_key_very_often(log: Log, tmp_path: Path) -> None:
    view, found = joined(log, tmp_path, {"a.csv": "user_id,name\n" + "".join(f"7,n{n}\n" for n in range(2224))})
    assert found == {"7": "n0", "8": None, "9": None, "10": None}
    assert sorted(x.position for x in side(log, view)) == list(range(1, 2224))


def test_a_table_is_partitioned_as_it_likes(log: Log, tmp_path: Path) -> None:
    """Not as the sample is: it is read whole."""
    table = users(tmp_path, "int64").model_copy(update={"partitions": 1})
    assert [spec.partitions for spec in feed_topics(table) if spec.name == "raw.users"] == [1]
    view, found = joined(log, tmp_path, {"a.csv": "user_id,name\n10,dan\n10,ed\n"})
    assert found == {"7": None, "8": None, "9": None, "10": "dan"}
    assert [x.position for x in side(log, view)] == [1]
