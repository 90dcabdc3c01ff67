"""The pages, over real sockets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.answering import Answering, answering
from headrace.health import Health
from headrace.settings import HttpSettings
from streams.errors import Usage


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@contextmanager
def served(folder: Path, health: Health, settings: HttpSettings = HttpSettings()) -> Iterator[str]:  # noqa: B008
    pages = Answering(settings, health, folder, "all")
    pages.start()
    try:
        (found,) = answering(folder)
        assert found["pid"] == os.getpid()
        yield found["url"]
    finally:
        pages.close()


def test_the_three_pages(tmp_path: Path) -> None:
    health = Health()
    health.expect(["ingest"])
    with served(tmp_path, health) as url:
        assert url.startswith("http://127.0.0.1:")
        assert get(f"{url}/healthz") == (200, '{"ok": true, "troubles": {}}\n')
        code, text = get(f"{url}/readyz")
        assert (code, json.loads(text)["troubles"]) == (503, {"ingest": "it has not begun"})
        health.take("ingest", {"moved": 1})
        assert get(f"{url}/readyz")[0] == 200
        code, text = get(f"{url}/metrics")
        names = {family.name for family in text_string_to_metric_families(text)}
        assert code == 200
        assert {"headrace_role_reports", "process_resident_memory_bytes"} <= names
        assert get(f"{url}/nothing")[0] == 404
    assert answering(tmp_path) == []


def test_only_this_machine_is_listened_to_unless_set(tmp_path: Path) -> None:
    with served(tmp_path, Health()) as url, closing(socket.socket()) as other:
        other.bind(("127.0.0.2", int(url.rpartition(":")[2])))  # free: not all addresses are taken
    with served(tmp_path, Health(), HttpSettings(host="0.0.0.0")) as url:
        port = url.rpartition(":")[2]
        assert get(f"http://127.0.0.2:{port}/healthz")[0] == 200


def test_several_at_once_do_not_fight(tmp_path: Path) -> None:
    with served(tmp_path / "a", Health()) as first, served(tmp_path / "b", Health()) as second:
        assert first != second
        assert [get(f"{url}/healthz")[0] for url in (first, second)] == [200, 200]


def test_a_port_that_is_taken_is_an_error_of_the_settings(tmp_path: Path) -> None:
    with served(tmp_path / "a", Health()) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(Usage) as caught:
            Answering(HttpSettings(port=port), Health(), tmp_path / "b", "all").start()
    assert caught.value.expected == f"to listen on 127.0.0.1:{port}"
    assert caught.value.exit_code == 2
    assert answering(tmp_path / "b") == []


def test_off(tmp_path: Path) -> None:
    pages = Answering(HttpSettings(port="off"), Health(), tmp_path, "all")
    pages.start()
    assert answering(tmp_path) == []
    pages.close()


def test_who_was_killed_does_not_answer(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from headrace.answering import *;"
        "Answering(HttpSettings(), Health(), Path(sys.argv[1]), 'all').start(); print(1, flush=True);"
        "sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdin is not None
    child.stdout.readline()
    assert [found["pid"] for found in answering(tmp_path)] == [child.pid]
    child.kill()
    child.wait()
    assert list(tmp_path.iterdir())
    assert answering(tmp_path) == []
    child.stdin.close()
    child.stdout.close()
