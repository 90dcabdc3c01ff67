"""Example projects: ``headrace init DIR --example NAME``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from headrace.examples import movielens, shop
from streams.errors import Usage

TEMPLATES = Path(__file__).parent / "templates"
EXAMPLES: dict[str, Callable[[Path], None]] = {"shop": shop.write_data, "movielens": movielens.write_data}


def write_project(directory: Path, example: str) -> None:
    """Write a project folder: settings, feeds, experiments and data. May fetch the data once (``movielens``).

    Raises:
        Usage: unknown example, or the folder is not empty. Unreachable: the data could not be fetched.
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
    EXAMPLES[example](directory / "data")
    shutil.copytree(TEMPLATES / example, directory, dirs_exist_ok=True)
