"""The tool that starts real services: what it starts works, is found again, and is all that it stops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from dev.daemon import Daemon, dies_with_starter, lasting
from dev.errors import Missing, NotReady
from dev.hdfs_service import Hdfs
from dev.kafka_service import Kafka
from dev.programs import check
from dev.redis_service import Redis

pytestmark = pytest.mark.service
ROOT = Path(__file__).parents[2]


def tool(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dev.services", *arguments, "--folder", str(folder)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> dict[str, str | None]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert isinstance(found, dict)
    return found


def test_up_twice_at_once_is_one_service_which_down_stops(tmp_path: Path, redis_server: Redis) -> None:
    both = [tool(tmp_path, "up", "redis", "--json") for _ in range(2)]
    first, second = (answer(process) for process in both)
    try:
        assert first == second == answer(tool(tmp_path, "status", "redis", "--json"))
        assert str(first["redis"]).startswith("redis://127.0.0.1:")
        assert first["redis"] != redis_server.url
        assert answer(tool(tmp_path, "status", "--json")) == {"kafka": None, "hdfs": None} | first
    finally:
        down = answer(tool(tmp_path, "down", "--json", "--wipe"))
    assert down == {"kafka": None, "hdfs": None, "redis": None}
    assert answer(tool(tmp_path, "status", "redis", "--json")) == {"redis": None}
    assert not (tmp_path / "redis").exists()
    assert redis_server.daemon.pid, "what others started goes on"


def test_unknown_service(tmp_path: Path) -> None:
    process = tool(tmp_path, "up", "zookeeper")
    assert "no service zookeeper; there are kafka, hdfs, redis" in process.communicate(timeout=60)[1]
    assert process.returncode == 2


def test_kafka_keeps_its_topics_over_a_kill(kafka: Kafka) -> None:
    topics = "org.apache.kafka.tools.TopicCommand"
    kafka.tool(topics, "--bootstrap-server", kafka.bootstrap, "--create", "--topic", "kept", "--partitions", "3")
    kafka.kill()
    kafka.start()
    assert "kept" in kafka.tool(topics, "--bootstrap-server", kafka.bootstrap, "--list").stdout.split()


def test_hdfs_is_up(hdfs: Hdfs) -> None:
    assert hdfs.url.startswith("hdfs://127.0.0.1:")
    assert (hdfs.conf / "core-site.xml").exists()
    with urllib.request.urlopen(f"http://127.0.0.1:{hdfs._ports[1]}/jmx", timeout=5) as page:
        assert page.status == 200


def test_a_daemon_that_ends_says_why(tmp_path: Path) -> None:
    daemon = Daemon("broken", ["sh", "-c", "echo no such port; exit 3"], tmp_path, dies_with_starter)
    daemon.start()
    with pytest.raises(NotReady, match=r"(?s)broken has ended.*no such port"):
        daemon.wait(lambda: False, 10)


def test_a_pid_that_another_program_has_now_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "other.pid").write_text(f"{os.getpid()} 1")
    daemon = Daemon("other", ["true"], tmp_path, lasting)
    assert daemon.pid is None
    daemon.stop()


def test_private_services_end_with_who_started_them(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from dev.daemon import Daemon, dies_with_starter\n"
        "Daemon('sleeper', ['sleep', '60'], Path(sys.argv[1]), dies_with_starter).start(); print('up', flush=True)\n"
        "time.sleep(60)"
    )
    starter = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
    assert starter.stdout is not None
    assert starter.stdout.readline() == b"up\n"
    starter.stdout.close()
    sleeper = Daemon("sleeper", [], tmp_path, lasting)
    assert sleeper.pid
    starter.kill()
    starter.wait()
    until = time.monotonic() + 10
    while sleeper.pid and time.monotonic() < until:
        time.sleep(0.02)
    assert sleeper.pid is None


@pytest.mark.parametrize("wrong", ["changed", "missing", "more"])
def test_jars_that_are_not_those_written_down(tmp_path: Path, wrong: str) -> None:
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"  # of "test"
    (tmp_path / "a.jar").write_text("test" if wrong != "changed" else "tests")
    if wrong == "more":
        (tmp_path / "b.jar").write_text("test")
    written = {"a.jar": digest} | ({"c.jar": digest} if wrong == "missing" else {})
    with pytest.raises(Missing, match=r"[abc]\.jar; nothing was started"):
        check(tmp_path, written)
    check(
        tmp_path, {file.name: digest for file in tmp_path.iterdir()} if wrong != "changed" else {"a.jar": _of("tests")}
    )


def _of(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()
