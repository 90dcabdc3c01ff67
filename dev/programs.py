"""The programs of the services: jars from Maven Central by pinned version and digest, ``redis-server`` from Debian."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dev.errors import Missing

KAFKA_VERSION, HADOOP_VERSION = "4.4.0", "3.5.0"
_SLF4J = ("org.slf4j:slf4j-simple:1.7.36",)
ARTIFACTS = {
    "kafka": (
        f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
        f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
        *_SLF4J,
    ),
    "hdfs": (
        f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP_VERSION}",
        f"org.apache.hadoop:hadoop-client-api:{HADOOP_VERSION}",
        f"org.apache.hadoop:hadoop-client-runtime:{HADOOP_VERSION}",
        *_SLF4J,
    ),
}
DIGESTS = Path(__file__).parent / "jars"
FETCH_S, INSTALL_S = 600, 300


def home() -> Path:
    """Where programs and shared services lie: ``HEADRACE_SERVICES``, or in the cache folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("HEADRACE_SERVICES") or cache / "headrace" / "services")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def java() -> str:
    """The program ``java``. Raises ``Missing``."""
    found = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    if not found:
        raise Missing(
            "java is not there; Kafka and HDFS need Java 17 (on Debian: apt-get install openjdk-17-jre-headless)"
        )
    return found


def jars(name: str) -> Path:
    """The folder with all jars of ``kafka`` or ``hdfs``, fetched if they are not there, each with the digest that is written
    down in ``dev/jars``. Raises ``Missing``."""
    digests = read_digests(DIGESTS / f"{name}.sha256")
    stamp = hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()[:12]
    folder = home() / "jars" / f"{name}-{stamp}"
    with locked(home() / "jars" / f"{name}.lock"):
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            _fetch(ARTIFACTS[name], new)
            check(new, digests)
            new.rename(folder)
    return folder


def read_digests(path: Path) -> dict[str, str]:
    """Lines of ``sha256sum``: file name → digest."""
    return {name: digest for digest, name in (line.split() for line in path.read_text().splitlines())}


def check(folder: Path, digests: dict[str, str]) -> None:
    """Raises ``Missing`` unless the folder has just these files with these digests."""
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*.jar")}
    wrong = sorted(name for name in found.keys() | digests.keys() if found.get(name) != digests.get(name))
    if wrong:
        raise Missing(
            f"{len(wrong)} of {len(digests)} jars are not those that are written down in dev/jars: {', '.join(wrong[:5])};"
            f" nothing was started. They lie in {folder}"
        )


def redis_server() -> str:
    """The program ``redis-server``; as root on Debian it is installed. Raises ``Missing``."""
    with locked(home() / "redis.lock"):
        if not shutil.which("redis-server") and os.geteuid() == 0 and shutil.which("apt-get"):
            _apt_install("redis-server")
    found = shutil.which("redis-server")
    if not found:
        raise Missing("redis-server is not there (on Debian: apt-get install redis-server)")
    return found


def _apt_install(package: str) -> None:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends", package]
    for command in (install, ["apt-get", "update"], install):
        done = subprocess.run(command, env=env, capture_output=True, timeout=INSTALL_S, check=False)
        if command is install and done.returncode == 0:
            return


def _fetch(artifacts: Sequence[str], folder: Path) -> None:
    if not shutil.which("mvn"):
        raise Missing("mvn is not there; it fetches the jars of Kafka and HDFS (on Debian: apt-get install maven)")
    folder.mkdir(parents=True)
    listed = ""
    for artifact in artifacts:
        group, name, version = artifact.split(":")
        listed += f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
    (folder / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>headrace</groupId>'
        f"<artifactId>services</artifactId><version>1</version><dependencies>{listed}</dependencies></project>"
    )
    command = ["mvn", "-q", "-B", "-f", str(folder / "pom.xml"), "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={folder}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
    if done.returncode:
        raise Missing(f"the jars could not be fetched: {(done.stdout + done.stderr).strip()[-600:]}")
