from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace import lock as module
from headrace.lock import RunLock
from streams.errors import Usage

HOLD = """
import sys, time
from pathlib import Path
from headrace.lock import RunLock
lock = RunLock(Path(sys.argv[1]), sys.argv[2])
lock.acquire()
if sys.argv[3] == "stopping":
    lock.mark("stopping")
print("held", flush=True)
time.sleep(float(sys.argv[4]))
"""


def hold(path: Path, mode: str, state: str = "running", seconds: float = 60) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLD, str(path), mode, state, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    process.stdout.close()
    return process


@pytest.mark.parametrize("mode", ["alone", "shared"])
def test_refused_beside_a_run_with_its_pid_and_start(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "state" / "run.lock"
    process = hold(path, "alone")
    try:
        with pytest.raises(Usage) as caught:
            RunLock(path, mode).acquire()  # type: ignore[arg-type]
    finally:
        process.kill()
        process.wait()
    assert caught.value.exit_code == 2
    assert str(process.pid) in caught.value.got
    assert "started 2" in caught.value.got


def test_single_roles_share_it_but_not_with_all(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    process = hold(path, "shared")
    try:
        second = RunLock(path, "shared")
        second.acquire()
        second.release()
        with pytest.raises(Usage):
            RunLock(path, "alone").acquire()
    finally:
        process.kill()
        process.wait()


def test_waits_for_a_tree_that_drains(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    process = hold(path, "alone", "stopping", 3.0)
    began = time.monotonic()
    lock = RunLock(path, "alone")
    lock.acquire()
    assert time.monotonic() - began > 1.0
    lock.release()
    process.wait()


def test_free_after_the_holder_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "run.lock"
    process = hold(path, "alone")
    process.kill()
    lock = RunLock(path, "alone")
    lock.acquire()
    lock.release()
    process.wait()


def test_children_do_not_inherit_it(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / "run.lock", "alone")
    lock.acquire()
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
    try:
        lock.release()
        again = RunLock(tmp_path / "run.lock", "alone")
        again.acquire()
        again.release()
    finally:
        child.kill()
        child.wait()


def test_a_damaged_file_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(module.PATIENCE_S, "running", 0.1)
    path = tmp_path / "run.lock"
    path.write_bytes(b"\xff{")
    lock = RunLock(path, "shared")
    lock.acquire()
    with pytest.raises(Usage):
        RunLock(path, "alone").acquire()
    lock.release()
    assert os.path.exists(path)
