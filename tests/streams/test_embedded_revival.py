"""A commit can come back from the dead: the writer is killed inside COMMIT, others draw conclusions, then all die."""

from __future__ import annotations

import platform
import signal
import sys
from pathlib import Path

import pytest

from streams.contracts import TopicPartition
from streams.errors import Broken
from streams.tail import read_to_end
from tests.streams.log_programs import identity, start_log
from tests.streams.processes import Program, check_index, running

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="needs seccomp"
)
TP = TopicPartition("out", 0)


def kill_inside_commit(directory: Path, *conclusions: str) -> list[str]:
    """What a living process answers after the death; afterwards nobody lives."""
    start_log(directory, "power").close()
    with running(Program("witness", directory)) as (witness,):
        witness.expect("working")
        victim = Program("die_in_commit", directory)
        assert victim.wait() == -signal.SIGSYS
        assert victim.lines == ["working"]
        assert witness.ask("end") == "0", "the living must not see it"
        return [witness.ask(conclusion) for conclusion in conclusions]


def test_it_comes_back_whole_when_nobody_wrote_in_between(tmp_path: Path) -> None:
    kill_inside_commit(tmp_path)
    log = start_log(tmp_path, "power")
    (record,) = read_to_end(log, "in", 0)
    assert record.value is not None
    assert identity(record.value) == (7, 3)
    assert log.group("victim").positions[TP].offset == 5
    log.close()
    check_index(tmp_path)


def test_removing_files_settles_it(tmp_path: Path) -> None:
    kill_inside_commit(tmp_path, "upkeep")
    log = start_log(tmp_path, "power")
    assert list(read_to_end(log, "in", 0)) == []
    log.close()
    check_index(tmp_path)
    assert list((tmp_path / "seg").iterdir()) == []


def test_control_removing_files_after_a_read_alone_loses_the_bytes(tmp_path: Path) -> None:
    kill_inside_commit(tmp_path, "upkeep without cure")
    log = start_log(tmp_path, "power")
    with pytest.raises(Broken) as caught:
        list(read_to_end(log, "in", 0))
    assert caught.value.where == "in/0@0"
    log.close()


def test_reading_committed_offsets_settles_it(tmp_path: Path) -> None:
    assert kill_inside_commit(tmp_path, "committed") == ["None"]
    log = start_log(tmp_path, "power")
    assert log.consumer("victim").committed([TP]) == {TP: None}
    log.close()


def test_control_looking_at_offsets_without_a_write_says_no_and_later_yes(tmp_path: Path) -> None:
    assert kill_inside_commit(tmp_path, "look") == ["None"]
    log = start_log(tmp_path, "power")
    assert log.consumer("victim").committed([TP])[TP] is not None
    log.close()
