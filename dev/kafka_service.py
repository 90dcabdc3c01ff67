"""One Kafka: broker and controller in one process (KRaft)."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dev.daemon import Daemon, Launch, free_ports
from dev.errors import NotReady
from dev.programs import jars, java

READY_S = 60.0
STORAGE = "kafka.tools.StorageTool"


class Kafka:
    """A broker in ``folder``, on the loopback; the same folder is the same broker, with its records and ports.

    Args:
        launch: see ``dev.daemon``. settings: of ``server.properties``, besides or instead of ours.
        heap: memory of the JVM.
    """

    name = "kafka"

    def __init__(
        self, folder: Path, launch: Launch, settings: Mapping[str, str] | None = None, heap: str = "512m"
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._classes = folder, f"{jars('kafka')}/*"
        ports = folder / "ports.json"
        if not ports.exists():
            ports.write_text(json.dumps(free_ports(2)))
        self._port, self._controller = json.loads(ports.read_text())
        self._settings = self._ours() | dict(settings or {})
        command = [java(), f"-Xmx{heap}", "-cp", self._classes, "kafka.Kafka", str(self._properties)]
        self.daemon = Daemon("kafka", command, folder, launch)

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """As users write it."""
        return f"kafka://{self.bootstrap}"

    def start(self) -> None:
        """Format a new folder, start, wait until clients can connect."""
        text = "".join(f"{key}={value}\n" for key, value in self._settings.items())
        self._properties.write_text(text)
        if not (self.folder / "data" / "meta.properties").exists():
            cluster = self.tool(STORAGE, "random-uuid").stdout.split()[-1]
            self.tool(STORAGE, "format", "--standalone", "-t", cluster, "-c", str(self._properties))
        self.daemon.start()
        self.daemon.wait(self._answers, READY_S)

    def stop(self) -> None:
        """Shut down."""
        self.daemon.stop()

    def kill(self) -> None:
        """kill −9."""
        self.daemon.kill()

    def stand_still(self) -> None:
        """SIGSTOP."""
        self.daemon.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.daemon.signal(signal.SIGCONT)

    def tool(self, main: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's own tools, for example ``org.apache.kafka.tools.TopicCommand``."""
        command = [java(), "-Xmx256m", "-cp", self._classes, main, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if check and done.returncode:
            raise NotReady(f"{main} {' '.join(arguments)}: {(done.stdout + done.stderr).strip()[-600:]}")
        return done

    @property
    def _properties(self) -> Path:
        return self.folder / "server.properties"

    def _ours(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller}",
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "message.max.bytes": str(64 * 1024 * 1024),
            "auto.create.topics.enable": "false",
        }

    def _answers(self) -> bool:
        with socket.create_connection(("127.0.0.1", self._port), timeout=1):
            return True
