from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import children
from headrace.children import FIRST_DELAY_S, LAST_DELAY_S, Child, ChildSpec, Lines
from headrace.stopping import Stop
from headrace.supervisor import ChildFailed, Supervisor

HERE = Path(__file__).parent
PREFIX = [sys.executable, str(HERE / "tiny_child.py")]


class Recorder:
    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.texts: list[str] = []

    def report(self, child: str, report: dict[str, Any]) -> None:
        self.reports.append({"child": child} | report)

    def text(self, child: str, line: str) -> None:
        self.texts.append(line)

    def tick(self) -> None:
        pass


def folder_with(path: Path, orders: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "orders").write_text(orders)
    return path


def supervise(specs: list[ChildSpec], *, forever: bool = False, stop: Stop | None = None) -> Recorder:
    recorder = Recorder()
    Supervisor(PREFIX, os.environ, lambda: specs, recorder, forever=forever).run(
        stop or Stop(), on_stopping=lambda: None
    )
    return recorder


def starts(folder: Path) -> list[int]:
    try:
        return [int(line) for line in (folder / "starts").read_text().split()]
    except FileNotFoundError:
        return []


def until(found: Callable[[], Any], limit_s: float = 20.0) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_child_that_dies_is_started_again_until_it_ends_by_itself(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "a", "die die 1 0")
    recorder = supervise([ChildSpec("a", (str(folder),))])
    assert len(starts(folder)) == 4
    assert [report["start"] for report in recorder.reports] == [1, 2, 3, 4]
    assert recorder.texts == [f"text of start {n}" for n in (1, 2, 3, 4)]


def test_all_children_have_to_end(tmp_path: Path) -> None:
    folders = [folder_with(tmp_path / "a", "0"), folder_with(tmp_path / "b", "die 0")]
    supervise([ChildSpec(folder.name, (str(folder),)) for folder in folders])
    assert [len(starts(folder)) for folder in folders] == [1, 2]


def test_an_error_that_no_start_can_cure_ends_the_tree(tmp_path: Path) -> None:
    folders = [folder_with(tmp_path / "a", "wait"), folder_with(tmp_path / "b", "die fail")]
    with pytest.raises(ChildFailed) as caught:
        supervise([ChildSpec(folder.name, (str(folder),)) for folder in folders])
    assert caught.value.exit_code == 4
    assert (caught.value.expected, caught.value.got, caught.value.where, caught.value.do) == ("e", "g", "w", "d")
    assert not any(alive(pid) for folder in folders for pid in starts(folder))


def test_a_signal_ends_the_children(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "a", "wait")
    parent = subprocess.Popen([sys.executable, str(HERE / "tiny_parent.py"), str(folder)], stderr=subprocess.DEVNULL)
    (pid,) = until(lambda: starts(folder))
    time.sleep(0.2)
    parent.terminate()
    assert parent.wait(20) == 128 + signal.SIGTERM
    assert not alive(pid)


def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "a", "wait")
    parent = subprocess.Popen([sys.executable, str(HERE / "tiny_parent.py"), str(folder)], stderr=subprocess.DEVNULL)
    (pid,) = until(lambda: starts(folder))
    parent.kill()
    parent.wait()
    until(lambda: not alive(pid), 5.0)


def test_the_pipe_alone_ends_a_child(tmp_path: Path) -> None:
    """The second guard: the parent lives, but its end of the pipe is gone."""
    folder = folder_with(tmp_path / "a", "wait")
    child = subprocess.Popen(
        [*PREFIX, str(folder), "--child", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: starts(folder))
    assert child.poll() is None
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(5) == 1


def test_a_new_wish_is_started_while_running(tmp_path: Path) -> None:
    first, second = folder_with(tmp_path / "a", "wait"), folder_with(tmp_path / "b", "wait")
    specs, stop = [ChildSpec("a", (str(first),))], Stop()

    def wanted() -> list[ChildSpec]:
        if starts(first) and len(specs) == 1:
            specs.append(ChildSpec("b", (str(second),)))
        if starts(second):
            stop.signal = signal.SIGTERM
        return specs

    Supervisor(PREFIX, os.environ, wanted, Recorder(), forever=True).run(stop, on_stopping=lambda: None)
    assert len(starts(second)) == 1


def test_a_child_that_ends_because_it_is_not_wanted_is_not_started_again(tmp_path: Path) -> None:
    first, second = folder_with(tmp_path / "a", "wait"), folder_with(tmp_path / "b", "0")
    stop, deadline = Stop(), time.monotonic() + 3.0

    def wanted() -> list[ChildSpec]:
        if time.monotonic() > deadline:
            stop.signal = signal.SIGTERM
        return [ChildSpec("a", (str(first),))] + ([] if starts(second) else [ChildSpec("b", (str(second),))])

    Supervisor(PREFIX, os.environ, wanted, Recorder(), forever=True).run(stop, on_stopping=lambda: None)
    assert (len(starts(first)), len(starts(second))) == (1, 1)


def test_waits_longer_after_each_start_that_came_to_nothing_and_forgets_it_after_progress(tmp_path: Path) -> None:
    child = Child(ChildSpec("a", (str(folder_with(tmp_path / "a", "0")),)), PREFIX, os.environ)
    delays = []
    for _ in range(8):
        process = child.start()
        process.wait()
        child.ended()
        delays.append(child._next_start_s - time.monotonic())
    assert delays[0] == pytest.approx(FIRST_DELAY_S, abs=0.05)
    assert delays[-1] == pytest.approx(LAST_DELAY_S, abs=0.05)
    process = child.start()
    process.wait()
    assert process.stdout is not None
    child.read(process.stdout.fileno(), lambda report: None, lambda text: None)
    child.ended()
    assert child._next_start_s - time.monotonic() == pytest.approx(FIRST_DELAY_S, abs=0.05)


def test_lines_are_put_together() -> None:
    lines = Lines()
    assert lines.feed(b'{"a"') == []
    assert lines.feed(b': 1}\n\n{"b": 2}\nrest') == ['{"a": 1}', '{"b": 2}']
    assert lines.feed(b"") == ["rest"]
    assert lines.feed(b"\xff\n") == ["\N{REPLACEMENT CHARACTER}"]


def test_a_child_that_fails_again_and_again_ends_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MOST_FAILURES", 4)
    folder = folder_with(tmp_path / "a", "1 die die die die 1 1 die 1 0")
    with pytest.raises(ChildFailed) as caught:
        supervise([ChildSpec("a", (str(folder),))], forever=True)
    assert caught.value.exit_code == 1
    assert len(starts(folder)) == 9, "death by a signal does not count"


def test_failures_long_ago_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "MOST_FAILURES", 2)
    monkeypatch.setattr(children, "FAILURES_WITHIN_S", 0.2)
    child = Child(ChildSpec("a", ()), [], {})
    for _ in range(3):
        assert not child.failed()
        time.sleep(0.25)
    assert not child.failed()
    assert child.failed()
