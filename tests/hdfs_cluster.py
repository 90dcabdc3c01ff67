"""A real HDFS on this machine for tests: one NameNode, one DataNode, in a folder of its own, on free ports of the loopback.

``HEADRACE_HDFS_JARS`` names the folder with the jars of hadoop-client-minicluster, -api and -runtime, and a binding of slf4j.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hdfs_native import Client, WriteOptions

JARS = "HEADRACE_HDFS_JARS"
BLOCK_BYTES = 1024 * 1024
PIECE_BYTES = 4 * 1024 * 1024
READY_S = 60.0
_SERVER = "org.apache.hadoop.hdfs.server."
NAMENODE, DATANODE = _SERVER + "namenode.NameNode", _SERVER + "datanode.DataNode"


class Hdfs:
    """The two daemons; each can be killed and started again."""

    def __init__(self, folder: Path, jars: Path, block_bytes: int = BLOCK_BYTES) -> None:
        self._folder, self._jars, self._block_bytes = folder, jars, block_bytes
        self._ports = _free_ports(5)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.url = f"hdfs://127.0.0.1:{self._ports[0]}"
        self._write_conf()

    def begin(self) -> None:
        """Format, start both, wait until a file can be written."""
        subprocess.run([*self._java(NAMENODE), "-format", "-nonInteractive"], check=True, capture_output=True)
        self.start(NAMENODE)
        self.start(DATANODE)
        self.wait()

    def client(self) -> Client:
        """Of this HDFS."""
        return Client(self.url)

    def put(self, path: str, data: bytes) -> None:
        """A file, closed."""
        with self.client().create(path, WriteOptions(block_size=self._block_bytes, overwrite=True)) as handle:
            for begin in range(0, len(data), PIECE_BYTES):
                handle.write(data[begin : begin + PIECE_BYTES])

    def put_folder(self, local: Path, path: str) -> str:
        """All files of a local folder; the URL of the copy."""
        for file in sorted(p for p in local.rglob("*") if p.is_file()):
            self.put(f"{path}/{file.relative_to(local)}", file.read_bytes())
        return f"{self.url}{path}"

    def start(self, daemon: str) -> None:
        """Start one; does not wait."""
        with (self._folder / f"{daemon.rpartition('.')[2]}.log").open("ab") as out:
            self._running[daemon] = subprocess.Popen(self._java(daemon), stdout=out, stderr=out, start_new_session=True)

    def kill(self, daemon: str) -> None:
        """kill −9."""
        process = self._running.pop(daemon)
        process.kill()
        process.wait()

    def stand_still(self, daemon: str) -> None:
        """SIGSTOP: connections stay, nothing answers."""
        self._running[daemon].send_signal(signal.SIGSTOP)

    def go_on(self, daemon: str) -> None:
        """SIGCONT."""
        self._running[daemon].send_signal(signal.SIGCONT)

    def wait(self) -> None:
        """Until both work: safe mode is off and the DataNode has reported."""
        until_s = time.monotonic() + READY_S
        query = f"http://127.0.0.1:{self._ports[1]}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        while time.monotonic() < until_s:
            with suppress(OSError, ValueError, KeyError, IndexError):
                state = json.load(urllib.request.urlopen(query, timeout=2))["beans"][0]
                if state["NumLiveDataNodes"] >= 1 and state["FSState"] == "Operational":
                    return
            time.sleep(0.2)
        raise TimeoutError(f"HDFS in {self._folder} is not up after {READY_S:g} s; see the logs there")

    def close(self) -> None:
        """Stop both."""
        for daemon in list(self._running):
            self.go_on(daemon)
            self.kill(daemon)

    def _java(self, main: str) -> list[str]:
        return ["java", "-Xmx256m", "-cp", f"{self._folder}/conf:{self._jars}/*", main]

    def _write_conf(self) -> None:
        (self._folder / "conf").mkdir(parents=True)
        _, web, data, data_web, data_ipc = self._ports
        site = {
            "dfs.replication": "1",
            "dfs.namenode.name.dir": f"file://{self._folder}/name",
            "dfs.datanode.data.dir": f"file://{self._folder}/data",
            "dfs.namenode.http-address": f"127.0.0.1:{web}",
            "dfs.datanode.address": f"127.0.0.1:{data}",
            "dfs.datanode.http.address": f"127.0.0.1:{data_web}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{data_ipc}",
            "dfs.namenode.fs-limits.min-block-size": "1024",
            "dfs.namenode.safemode.extension": "0",
        }
        for name, values in {"core-site.xml": {"fs.defaultFS": self.url}, "hdfs-site.xml": site}.items():
            inner = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in values.items())
            (self._folder / "conf" / name).write_text(f"<configuration>{inner}</configuration>")


@contextmanager
def started(folder: Path) -> Iterator[Hdfs]:
    """A running HDFS; skips (or fails, where services are required) if there is none on this machine."""
    jars = os.environ.get(JARS)
    missing = f"{JARS} is not set" if not jars else "" if shutil.which("java") else "no java"
    if missing:
        if os.environ.get("HEADRACE_REQUIRE_SERVICES") == "1":
            pytest.fail(f"HDFS is required here: {missing}")
        pytest.skip(f"no HDFS: {missing}")
    cluster = Hdfs(folder, Path(str(jars)))
    try:
        cluster.begin()
        yield cluster
    finally:
        cluster.close()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
