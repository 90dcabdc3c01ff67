from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streams.errors import Exhausted
from trainer import scores
from trainer.metrics import summary, windows
from trainer.scores import Chunk, ScoreLog, read_chunks


def add(log: ScoreLog, rows: int) -> None:
    start = log.rows
    values = np.arange(start, start + rows)
    log.add(values, (values % 2).astype(np.float32), (values % 97 / 97).astype(np.float32))


def save(log: ScoreLog, folder: Path) -> tuple[Chunk, ...]:
    folder.mkdir()
    chunks = log.write(folder)
    log.committed(folder, chunks)
    return chunks


def times(log: ScoreLog) -> list[int]:
    return [int(t) for part in log.parts() for t in part[0]]


@pytest.mark.parametrize("seed", range(5))
def test_rows_stay_in_order_in_few_files(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    log = ScoreLog(10_000_000, tmp_path / "spill")
    most = 0
    for number in range(60):
        for _ in range(int(rng.integers(0, 4))):
            add(log, int(rng.integers(1, 50)))
        chunks = save(log, tmp_path / str(number))
        most = max(most, len(chunks))
    assert times(log) == list(range(log.rows))
    assert most <= 16
    assert sum(chunk.rows for chunk in chunks) == log.rows


def test_each_folder_is_whole_by_itself(tmp_path: Path) -> None:
    log = ScoreLog(1_000, tmp_path / "spill")
    add(log, 100)
    first = save(log, tmp_path / "1")
    add(log, 10)
    second = save(log, tmp_path / "2")
    add(log, 1)
    assert [c.rows for c in first] == [100]
    assert [c.rows for c in second] == [100, 10]
    link = (tmp_path / "2/scores" / first[0].file).stat()
    assert link.st_nlink == 2
    other = ScoreLog(1_000, tmp_path / "spill")
    other.load(tmp_path / "2", second, 110)
    assert times(other) == list(range(110))
    assert times(log) == list(range(111))


def test_oldest_rows_are_dropped(tmp_path: Path) -> None:
    log = ScoreLog(100, tmp_path / "spill")
    for number in range(40):
        add(log, 10)
        save(log, tmp_path / str(number))
    kept = times(log)
    assert kept == list(range(log.first, 400))
    assert 100 <= len(kept) < 130
    assert log.first > 0


def test_nothing_counts_before_it_is_committed(tmp_path: Path) -> None:
    log = ScoreLog(100, tmp_path / "spill")
    add(log, 5)
    (tmp_path / "lost").mkdir()
    log.write(tmp_path / "lost")
    add(log, 5)
    (chunk,) = save(log, tmp_path / "kept")
    assert chunk.rows == 10
    (part,) = read_chunks(tmp_path / "kept/scores", [chunk])
    assert part[0].tolist() == list(range(10))


def test_no_rows(tmp_path: Path) -> None:
    log = ScoreLog(10, tmp_path / "spill")
    assert save(log, tmp_path / "a") == ()
    assert times(log) == []
    log.load(tmp_path / "a", (), 50)
    assert log.first == 50, "rows whose files are lost count as dropped"
    add(log, 3)
    (chunk,) = save(log, tmp_path / "b")
    assert (chunk.first, log.first, log.rows) == (50, 50, 53)


def test_rows_that_wait_for_a_checkpoint_are_not_all_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "PIECE_ROWS", 100)
    log, plain = ScoreLog(10_000, tmp_path / "spill"), ScoreLog(10_000, tmp_path / "spill")
    for rows in (1, 99, 30, 250, 7, 101):
        add(log, rows)
        assert sum(len(part[0]) for part in log._pending._parts) < 100
        assert times(log) == list(range(log.rows))
    assert list((tmp_path / "spill").iterdir()) == [], "the file has no name, so nothing is left after a crash"
    monkeypatch.setattr(scores, "PIECE_ROWS", 131_072)
    add(plain, log.rows)
    (tmp_path / "lost").mkdir()
    log.write(tmp_path / "lost")
    assert times(log) == list(range(488)), "not committed: they still wait"
    (mine,), (theirs,) = save(log, tmp_path / "a"), save(plain, tmp_path / "b")
    assert (tmp_path / "a/scores" / mine.file).read_bytes() == (tmp_path / "b/scores" / theirs.file).read_bytes()
    add(log, 5)
    assert times(log) == list(range(493))


def test_no_room_for_waiting_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "PIECE_ROWS", 100)
    (tmp_path / "full").symlink_to("/dev/full")
    log = ScoreLog(100, tmp_path / "full")
    with pytest.raises(Exhausted, match="since the last checkpoint"):
        add(log, 100)


@pytest.mark.parametrize("first", [0, 131_000, 200_000])
def test_metrics_depend_on_rows_alone(first: int) -> None:
    """Not on the steps, files and checkpoints in which they came."""
    rng = np.random.default_rng(1)
    rows = 300_000
    part = (np.arange(rows), (rng.random(rows) < 0.3).astype(np.float32), rng.random(rows).astype(np.float32))

    def cut(at: list[int]) -> list[scores.Part]:
        return [tuple(column[a:b] for column in part) for a, b in zip([0, *at], [*at, rows], strict=True)]

    ways = [cut([]), cut(sorted(rng.integers(0, rows, 50).tolist())), cut(list(range(4096, rows, 4096)))]
    assert ways[0]
    one, *others = [summary(way, first + rows, first) for way in ways]
    assert all(other == one for other in others)
    one, *others = [list(windows(way, first)) for way in ways]
    assert all(other == one for other in others)
