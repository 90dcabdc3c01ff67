"""Where the parts of an example lie, if not in its folder."""

from __future__ import annotations

import re
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
    """

    source: str | None = None

    def move(self, project: Path) -> None:
        """Put what belongs elsewhere there, and point the project at it.

        Raises:
            Usage: no URL of HDFS with a path, or something is there. Unreachable: it does not answer.
        """
        if self.source is not None:
            _move_files(project, self.source.rstrip("/"))


HERE = Places()


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
