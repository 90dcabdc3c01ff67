"""Where the parts of an example lie, if not in its folder."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streams.errors import Unreachable, Usage

PIECE_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Places:
    """Args:
    source: URL of a new or empty folder for the files of the feeds; ``None``: they stay in ``data/``.
    log: ``kafka://HOST:PORT``; ``None``: the embedded one. The project gets a prefix of its own there.
    cache: URL of a Redis that trainers share; ``None``: none.
    """

    source: str | None = None
    log: str | None = None
    cache: str | None = None

    def move(self, project: Path) -> None:
        """Put what belongs elsewhere there, and point the project at it.

        Raises:
            Usage: not such a URL, or something is there. Unreachable: it does not answer.
        """
        lines = []
        if self.log is not None:
            bootstrap = _address(self.log, "kafka", "--log")
            lines.append(f'log: {{kafka: {{bootstrap: "{bootstrap}", prefix: demo-{secrets.token_hex(4)}}}}}\n')
        if self.cache is not None:
            _address(self.cache, "redis", "--cache")
            lines.append(f'cache: {{redis: {{url: "{self.cache}"}}}}\n')
        if lines:
            with (project / "headrace.yaml").open("a") as file:
                file.writelines(["\n", *lines])
        if self.source is not None:
            _move_files(project, self.source.rstrip("/"))


HERE = Places()


def _address(url: str, scheme: str, option: str) -> str:
    """What stands behind the scheme, without a slash at the end."""
    found, _, address = url.partition("://")
    if found != scheme or not address.strip("/"):
        raise Usage(
            expected=f"{scheme}://HOST:PORT",
            got=repr(url),
            where=option,
            do="`python -m dev.services up` starts one here.",
        )
    return address.rstrip("/")


def _move_files(project: Path, source: str) -> None:
    from ingest.hdfs_store import Hdfs
    from ingest.sources import is_hdfs

    if not is_hdfs(source) or source.count("/") < 3:
        raise Usage(
            expected="hdfs://HOST:PORT/new/folder (or hdfs://NAME-SERVICE/new/folder)",
            got=repr(source),
            where="--source",
            do="Name a folder on HDFS.",
        )
    data = project / "data"
    try:
        store = Hdfs(source)
        if store.files():
            raise Usage(
                expected="a new or empty folder",
                got=f"{source}, which holds files",
                where="--source",
                do="Name another folder; nothing was changed.",
            )
        for file in sorted(path for path in data.rglob("*") if path.is_file()):
            store.put(str(file.relative_to(data)), _pieces(file))
    except OSError as error:
        raise Unreachable(
            expected="to write the files of the example",
            got=str(error),
            where=source,
            do="Check the URL, the rights, and that HDFS is up; clear the folder before the next try.",
        ) from error
    for path in (project / "feeds").glob("*.yaml"):
        path.write_text(re.sub(r"url: data/([\w-]+)", rf'url: "{source}/\1"', path.read_text()))
    shutil.rmtree(data)


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as handle:
        while piece := handle.read(PIECE_BYTES):
            yield piece
