from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trainer.scores import Chunk, ScoreLog, read_chunk


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
    log = ScoreLog(10_000_000)
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
    log = ScoreLog(1_000)
    add(log, 100)
    first = save(log, tmp_path / "1")
    add(log, 10)
    second = save(log, tmp_path / "2")
    add(log, 1)
    assert [c.rows for c in first] == [100]
    assert [c.rows for c in second] == [100, 10]
    link = (tmp_path / "2/scores" / first[0].file).stat()
    assert link.st_nlink == 2
    other = ScoreLog(1_000)
    other.load(tmp_path / "2", second, 110)
    assert times(other) == list(range(110))
    assert times(log) == list(range(111))


def test_oldest_rows_are_dropped(tmp_path: Path) -> None:
    log = ScoreLog(100)
    for number in range(40):
        add(log, 10)
        save(log, tmp_path / str(number))
    kept = times(log)
    assert kept == list(range(log.first, 400))
    assert 100 <= len(kept) < 130
    assert log.first > 0


def test_nothing_counts_before_it_is_committed(tmp_path: Path) -> None:
    log = ScoreLog(100)
    add(log, 5)
    (tmp_path / "lost").mkdir()
    log.write(tmp_path / "lost")
    add(log, 5)
    (chunk,) = save(log, tmp_path / "kept")
    assert chunk.rows == 10
    assert read_chunk(tmp_path / "kept/scores" / chunk.file)[0].tolist() == list(range(10))


def test_no_rows(tmp_path: Path) -> None:
    log = ScoreLog(10)
    assert save(log, tmp_path / "a") == ()
    assert times(log) == []
    log.load(tmp_path / "a", (), 50)
    assert log.first == 50, "rows whose files are lost count as dropped"
    add(log, 3)
    (chunk,) = save(log, tmp_path / "b")
    assert (chunk.first, log.first, log.rows) == (50, 50, 53)
