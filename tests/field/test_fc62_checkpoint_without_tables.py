"""A restore brings back every row as it was, and a checkpoint without its tables is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from streams.errors import Broken
from tests.trainer.stream import World, messages, run, version
from trainer.checkpoint.manifest import read_manifest, to_bytes
from trainer.checkpoint.verify import verify
from trainer.folder import checkpoint_folders


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, version(), settings={"keep": 1})
    world.send_all(messages(world.version.experiment, 2, 10))
    world.train()
    yield world
    world.close()


def test_all_rows_come_back_in_a_new_process(world: World) -> None:
    (path,) = checkpoint_folders(world.checkpoints)
    saved = {file.stem: pa.ipc.open_file(file).read_all().to_pylist() for file in (path / "tables").iterdir()}
    script = (
        "import sys; from pathlib import Path; from tests.trainer.stream import World, version\n"
        "t = World(Path(sys.argv[1]), version(), settings={'keep': 1}).trainer(); s = t._open()\n"
        "import json; print(json.dumps({name: table.export().read_all().to_pylist() for name, table in s.learner.tables.items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(world.path)], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr
    loaded = json.loads(done.stdout)
    assert loaded == saved
    assert len({tuple(row["weights"]) for row in loaded["item"]}) == len(loaded["item"]) > 40, (
        "each row has its own value"
    )


@pytest.mark.parametrize("file", ["tables/item.arrow", "tables/item2.arrow"])
def test_table_file_gone(world: World, file: str) -> None:
    (path,) = checkpoint_folders(world.checkpoints)
    (path / file).unlink()
    assert [problem.file for problem in verify(path)] == [file]
    with pytest.raises(Broken, match=file):
        run(world.trainer())


def test_manifest_that_names_no_tables(world: World) -> None:
    """Only the dense part was saved, and everything that is there has its right digest."""
    (path,) = checkpoint_folders(world.checkpoints)
    manifest = read_manifest(path)
    files = {name: entry for name, entry in manifest.files.items() if not name.startswith("tables/")}
    (path / "manifest.json").write_bytes(to_bytes(replace(manifest, tables={}, files=files)))
    with pytest.raises(Broken, match="all tables of the experiment"):
        run(world.trainer())


def test_manifest_that_forgot_the_digest_of_a_table(world: World) -> None:
    (path,) = checkpoint_folders(world.checkpoints)
    manifest = read_manifest(path)
    files = {name: entry for name, entry in manifest.files.items() if name != "tables/item.arrow"}
    (path / "manifest.json").write_bytes(to_bytes(replace(manifest, files=files)))
    with pytest.raises(Broken, match="not in the manifest"):
        run(world.trainer())
