"""``headrace doctor``: is this machine and this installation fit, and what to do where it is not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from headrace import runtime
from headrace.project import Project
from headrace.quantities import format_size
from headrace.settings import Settings
from streams.errors import HeadraceError

DISTRIBUTION = "headrace"
IMPORT_NAMES = (*runtime.PACKAGES, "headrace")
PACKAGES = (
    "numpy",
    "pyarrow",
    "numba",
    "torch",
    "pydantic",
    "typer",
    "rich",
    "structlog",
    "safetensors",
    "xxhash",
    "fsspec",
    "hdfs-native",
    "redis",
    "kafka-python",
)
MIN_FREE_BYTES = 2 * 1024**3
MIN_OPEN_FILES = 1024

Level = Literal["ok", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``bad``: Headrace will not work well; ``do`` says what to do."""

    level: Level
    what: str
    do: str = ""

    def as_dict(self) -> dict[str, str]:
        """JSON types."""
        return asdict(self)


def examine(project: Project | None) -> Iterator[Finding]:
    """All findings, quickly: imports nothing heavy."""
    yield _python()
    yield from _versions()
    yield from _import_names()
    yield from _sqlite()
    yield from _folders(project)
    yield from _machine()
    yield from _environment()
    yield from _sources(project)


def warm(run: Callable[[], None]) -> Finding:
    """Compile the kernels once, by running a small chain from files to a model."""
    began_s = time.monotonic()
    run()
    cache = os.environ["NUMBA_CACHE_DIR"]
    return Finding("ok", f"kernels compiled and run in {time.monotonic() - began_s:.1f} s; kept in {cache}")


def _python() -> Finding:
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if platform.system() != "Linux":
        return Finding("bad", text, "Headrace is made for Linux.")
    return Finding("ok", text)


def _versions() -> Iterator[Finding]:
    found, missing = [], []
    for name in (DISTRIBUTION, *PACKAGES):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    yield Finding("ok", ", ".join(found))
    if missing:
        yield Finding("bad", f"not installed: {', '.join(missing)}", "Install headrace again: make setup.")


def _import_names() -> Iterator[Finding]:
    """Names such as ``cache`` are short: another distribution could shadow them."""
    foreign = []
    for name in IMPORT_NAMES:
        spec = importlib.util.find_spec(name)
        folder = Path(spec.origin).resolve().parent.parent if spec and spec.origin else None
        if folder != runtime.ROOT:
            foreign.append(f"{name} from {folder or 'nowhere'}")
    if foreign:
        do = "Another package or a folder on PYTHONPATH shadows them; use a virtual environment of its own."
        yield Finding("bad", f"imported from elsewhere: {', '.join(foreign)}", do)
    else:
        yield Finding("ok", f"{', '.join(IMPORT_NAMES)} come from {runtime.ROOT}")


def _sqlite() -> Iterator[Finding]:
    from streams.embedded.log import sqlite_version_note

    note = sqlite_version_note(sqlite3.sqlite_version_info)
    if note:
        yield Finding("note", note)
    else:
        yield Finding("ok", f"SQLite {sqlite3.sqlite_version}")


def _folders(project: Project | None) -> Iterator[Finding]:
    try:
        yield Finding("ok", f"compiled kernels can be kept in {runtime.kernel_cache(os.environ)}")
    except HeadraceError as error:
        yield Finding("bad", error.got, error.do)
    folder = project.root if project else Path.cwd()
    if os.access(folder, os.W_OK | os.X_OK):
        yield Finding("ok", f"{folder} can be written")
    else:
        yield Finding("bad", f"{folder} cannot be written", "The log and checkpoints lie in it: change its rights.")
    free = shutil.disk_usage(folder).free
    text = f"{format_size(free)} free in {folder}"
    yield (
        Finding("ok", text)
        if free >= MIN_FREE_BYTES
        else Finding("note", text, f"At least {format_size(MIN_FREE_BYTES)} is advised.")
    )


def _machine() -> Iterator[Finding]:
    yield Finding("ok", f"{os.cpu_count()} cores, {len(os.sched_getaffinity(0))} usable")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < MIN_OPEN_FILES:
        yield Finding("note", f"at most {soft} open files", f"ulimit -n {MIN_OPEN_FILES}")
    else:
        yield Finding("ok", f"up to {soft} open files")
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if size != resource.RLIM_INFINITY:
        yield Finding("note", f"files may have at most {format_size(size)}", "ulimit -f unlimited")
    try:
        mode = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        yield Finding("note", "transparent huge pages: unknown", "Large tables are faster with them.")
        return
    active = mode.partition("[")[2].partition("]")[0]
    if active == "never":
        do = "Large tables are faster with them: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)"
        yield Finding("note", "transparent huge pages: never", do)
    else:
        yield Finding("ok", f"transparent huge pages: {active}")


def _environment() -> Iterator[Finding]:
    try:
        runtime.refuse(os.environ)
    except HeadraceError as error:
        yield Finding("bad", error.got, error.do)


def _sources(project: Project | None) -> Iterator[Finding]:
    """The file system of each feed that is not on this machine."""
    from experiments.errors import SpecError
    from experiments.loading import load_feeds
    from headrace.reach import look_at

    if project is None:
        return
    try:
        feeds = load_feeds(project.feeds)
    except SpecError as error:
        yield Finding("bad", f"the feeds cannot be read: {error}", "headrace validate")
        return
    for feed in feeds.values():
        if "://" not in feed.files.url:
            continue
        try:
            yield Finding("ok", look_at(feed))
        except HeadraceError as error:
            yield Finding("bad", f"feed {feed.feed}: {error.where}: {error.got}", error.do)


def services(settings: Settings, root: Path) -> Iterator[Finding]:
    """What the settings name beside the machine: a Redis may be away at any time, so that is a note."""
    if settings.log.kafka is not None:
        yield _kafka(settings.log.kafka.bootstrap, settings, root)
    config = settings.cache_config().redis
    if config is not None:
        from cache.redis_tier import look_at

        problem, text = look_at(config)
        do = "Trainers go on without it, and read the log instead. See docs/services/redis.md."
        yield Finding("note", text, do) if problem else Finding("ok", text)


def _kafka(bootstrap: str, settings: Settings, root: Path) -> Finding:
    """Whether Kafka answers, and lets us do what we do: its log is opened, which makes the topic that names it."""
    from headrace.project import Project, open_project_log

    try:
        log = open_project_log(Project(root), settings, create=True)
    except HeadraceError as error:
        return Finding("bad", f"Kafka at {bootstrap}: {error.got}", f"{error.do} See docs/services/kafka.md.")
    try:
        return Finding("ok", f"Kafka at {bootstrap} answers; {len(log.topics())} topics of this project, log {log.id}")
    except HeadraceError as error:
        return Finding("bad", f"Kafka at {bootstrap}: {error.got}", error.do)
    finally:
        log.close()
