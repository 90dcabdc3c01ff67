"""Which rows each step trained, for tests: ``<folder>/<name>.v<n>/<first step>-<last step>.arrow`` with the columns step,
file, row. A file is written with each checkpoint; files behind the checkpoint that a trainer goes on from are removed. So
what lies there when a trainer has ended is exactly what its model has seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from preprocess.contracts import LocalBatch
from trainer.folder import sync_folder

SCHEMA = pa.schema([("step", pa.int64()), ("file", pa.string()), ("row", pa.int64())])
_NAME = re.compile(r"^(\d{12})-(\d{12})\.arrow$")


class Ledger:
    """Ids of the rows since the last checkpoint, and the files of those before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: list[pa.RecordBatch] = []
        self._from_step = 0

    def restart(self, step: int) -> None:
        """Training goes on behind ``step``: forget all later steps."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.iterdir():
            match = _NAME.match(path.name)
            if match is None or int(match[2]) > step:
                path.unlink()
        sync_folder(self._folder)
        self._parts, self._from_step = [], step

    def add(self, step: int, parts: Sequence[LocalBatch]) -> None:
        """A step was trained on these local batches, in their order."""
        for part in parts:
            files = pa.array(part.files, pa.string()).take(pa.array(part.file_B))
            steps = pa.array(np.full(part.rows, step, np.int64))
            self._parts.append(pa.RecordBatch.from_arrays([steps, files, pa.array(part.row_B)], schema=SCHEMA))

    def write(self, step: int) -> None:
        """Write what was added; the checkpoint of ``step`` follows."""
        if step == self._from_step:
            return
        path = self._folder / f"{self._from_step + 1:012d}-{step:012d}.arrow"
        temporary = path.with_suffix(".new")
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
            writer.write_table(pa.Table.from_batches(self._parts, SCHEMA))
        temporary.rename(path)
        self._parts, self._from_step = [], step
