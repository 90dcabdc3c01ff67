"""One HDFS: a NameNode and a DataNode."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from hdfs_native import Client, WriteOptions

from dev.daemon import Daemon, Launch, free_ports
from dev.errors import NotReady
from dev.programs import jars, java

READY_S = 60.0
PIECE_BYTES = 4 * 1024 * 1024
_SERVER = "org.apache.hadoop.hdfs.server"
_NAMENODE, _DATANODE = f"{_SERVER}.namenode.NameNode", f"{_SERVER}.datanode.DataNode"


class Hdfs:
    """Both daemons in ``folder``, on the loopback; the same folder is the same HDFS, with its files and ports.

    Args:
        launch: see ``dev.daemon``. settings: of ``hdfs-site.xml``, besides or instead of ours.
    """

    name = "hdfs"

    def __init__(self, folder: Path, launch: Launch, settings: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        ports = folder / "ports.json"
        if not ports.exists():
            ports.write_text(json.dumps(free_ports(5)))
        self._ports = json.loads(ports.read_text())
        self._settings = self._ours() | dict(settings or {})
        self._java = [java(), "-Xmx384m", "-cp", f"{folder}/conf:{jars('hdfs')}/*"]
        self.namenode = Daemon("namenode", [*self._java, _NAMENODE], folder, launch)
        self.datanode = Daemon("datanode", [*self._java, _DATANODE], folder, launch)

    @property
    def url(self) -> str:
        """As users write it."""
        return f"hdfs://127.0.0.1:{self._ports[0]}"

    @property
    def conf(self) -> Path:
        """For ``HADOOP_CONF_DIR``."""
        return self.folder / "conf"

    def start(self) -> None:
        """Format a new folder, start both, wait until a file can be written."""
        self._write_conf()
        if not (self.folder / "name").exists():
            done = subprocess.run(
                [*self._java, _NAMENODE, "-format", "-nonInteractive"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise NotReady(f"the NameNode could not be formatted: {done.stderr.strip()[-600:]}")
        self.namenode.start()
        self.datanode.start()
        self.wait()

    def wait(self) -> None:
        """Until both work: safe mode is off and the DataNode has reported."""
        self.datanode.wait(self._works, READY_S)

    def client(self) -> Client:
        """Of this HDFS."""
        return Client(self.url)

    def put(self, path: str, data: bytes, block_bytes: int = 1024 * 1024) -> None:
        """A file, closed."""
        with self.client().create(path, WriteOptions(block_size=block_bytes, overwrite=True)) as handle:
            for begin in range(0, len(data), PIECE_BYTES):
                handle.write(data[begin : begin + PIECE_BYTES])

    def put_folder(self, local: Path, path: str, block_bytes: int = 1024 * 1024) -> str:
        """All files of a local folder; the URL of the copy."""
        for file in sorted(p for p in local.rglob("*") if p.is_file()):
            self.put(f"{path}/{file.relative_to(local)}", file.read_bytes(), block_bytes)
        return f"{self.url}{path}"

    def stop(self) -> None:
        """Shut both down."""
        self.datanode.stop()
        self.namenode.stop()

    def stand_still(self) -> None:
        """SIGSTOP of both."""
        for daemon in (self.namenode, self.datanode):
            daemon.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT of both."""
        for daemon in (self.namenode, self.datanode):
            daemon.signal(signal.SIGCONT)

    def _works(self) -> bool:
        query = f"http://127.0.0.1:{self._ports[1]}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        with contextlib.suppress(ValueError, KeyError, IndexError):
            with urllib.request.urlopen(query, timeout=2) as answer:
                state = json.load(answer)["beans"][0]
            return bool(state["NumLiveDataNodes"] >= 1 and state["FSState"] == "Operational")
        return False

    def _ours(self) -> dict[str, str]:
        _, web, data, data_web, data_ipc = self._ports
        return {
            "dfs.replication": "1",
            "dfs.namenode.name.dir": f"file://{self.folder}/name",
            "dfs.datanode.data.dir": f"file://{self.folder}/data",
            "dfs.namenode.http-address": f"127.0.0.1:{web}",
            "dfs.datanode.address": f"127.0.0.1:{data}",
            "dfs.datanode.http.address": f"127.0.0.1:{data_web}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{data_ipc}",
            "dfs.namenode.fs-limits.min-block-size": "1024",
            "dfs.namenode.safemode.extension": "0",
        }

    def _write_conf(self) -> None:
        self.conf.mkdir(exist_ok=True)
        for name, values in {"core-site.xml": {"fs.defaultFS": self.url}, "hdfs-site.xml": self._settings}.items():
            inner = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in values.items())
            (self.conf / name).write_text(f"<configuration>{inner}</configuration>")
