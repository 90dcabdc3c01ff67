"""Example projects: ``headrace init DIR --example NAME``."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from headrace.examples import movielens, shop
from headrace.examples.places import HERE, Places
from streams.errors import Usage

TEMPLATES = Path(__file__).parent / "templates"
EXAMPLES: dict[str, Callable[[Path], None]] = {"shop": shop.write_data, "movielens": movielens.write_data}


def write_project(directory: Path, example: str, places: Places = HERE) -> None:
    """Write a project folder: settings, feeds, experiments and data. May fetch the data once (``movielens``).

    Raises:
        Usage: unknown example, or the folder is not empty. Unreachable: the data could not be fetched, or not be put there.
    """
    if example not in EXAMPLES:
        known = " or ".join(EXAMPLES)
        raise Usage(expected=f"the example {known}", got=repr(example), where="--example", do="Choose one of them.")
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise Usage(
            expected="a new or empty folder",
            got=f"{directory}, which holds something",
            where="init",
            do="Name another folder; nothing was changed.",
        )
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".init-", dir=directory) as scratch:
        made = Path(scratch)
        EXAMPLES[example](made / "data")
        shutil.copytree(TEMPLATES / example, made, dirs_exist_ok=True, copy_function=shutil.copyfile)
        places.move(made)
        for path in sorted(made.iterdir(), key=lambda path: path.name == "headrace.yaml"):  # last: it makes the project
            path.rename(directory / path.name)
