"""The example ``movielens``: MovieLens 100K, as a wheel on the package index carries it.

The data set is GroupLens's, for research use; it is not redistributed here. It is fetched once into a cache folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from streams.errors import Broken, Unreachable

PACKAGE, VERSION = "recbole", "1.2.1"
WHEEL = f"{PACKAGE}-{VERSION}-py3-none-any.whl"
SHA256 = "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
INSIDE = "recbole/dataset_example/ml-100k"
NAMES = ("ml-100k.inter", "ml-100k.user", "ml-100k.item")
FILES = 8
TERMS = (
    "MovieLens 100K by GroupLens (University of Minnesota), for research use under its own terms; "
    f"taken from the wheel {PACKAGE} {VERSION} (Harper and Konstan 2015, doi 10.1145/2827872)"
)


def cache_folder() -> Path:
    """Where data sets are kept: ``HEADRACE_DATA_DIR``, else ``$XDG_CACHE_HOME/headrace/datasets``, else below ``~/.cache``."""
    if named := os.environ.get("HEADRACE_DATA_DIR"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace" / "datasets"


def write_data(folder: Path) -> None:
    """Ratings in (time, user, item) order in eight files; users and films. Says where the data comes from.

    Raises:
        Unreachable: the wheel cannot be fetched. Broken: it is not the one that is meant.
    """
    source = _fetched(cache_folder() / "ml-100k")
    print(f"data: {TERMS}", file=sys.stderr)
    header, *ratings = (source / NAMES[0]).read_text(encoding="utf-8").splitlines()
    ratings.sort(key=_moment)
    for number in range(FILES):
        part = ratings[len(ratings) * number // FILES : len(ratings) * (number + 1) // FILES]
        _write(folder / "ratings" / f"part-{number}.tsv", [header, *part])
    _write(folder / "users" / "users.tsv", (source / NAMES[1]).read_text(encoding="utf-8").splitlines())
    header, *films = (source / NAMES[2]).read_text(encoding="utf-8").splitlines()
    lines = [f"{header}\tgenre_set:token", *(f"{film}\t{'+'.join(film.split(chr(9))[3].split())}" for film in films)]
    _write(folder / "items" / "items.tsv", lines)


def _moment(line: str) -> tuple[float, int, int]:
    user, item, _, time = line.split("\t")
    return float(time), int(user), int(item)


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _fetched(target: Path) -> Path:
    """The folder with the three files, fetched if it is not there yet. Two processes at once do no harm."""
    if all((target / name).is_file() for name in NAMES):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        wheel = target.parent / WHEEL
        if not wheel.is_file():
            wheel = _download(Path(scratch))
        _check(wheel)
        unpacked = Path(scratch) / "unpacked"
        unpacked.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            for name in NAMES:
                (unpacked / name).write_bytes(archive.read(f"{INSIDE}/{name}"))
        try:
            unpacked.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            for name in NAMES:
                shutil.copy(unpacked / name, target / f".{name}.{os.getpid()}")
                (target / f".{name}.{os.getpid()}").rename(target / name)
    return target


def _download(folder: Path) -> Path:
    print(f"fetching MovieLens 100K (the wheel {PACKAGE} {VERSION}, 2 MB) …", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run(
        [*command, "--dest", str(folder), f"{PACKAGE}=={VERSION}"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode or not (folder / WHEEL).is_file():
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise Unreachable(
            expected=f"to fetch {WHEEL} with pip",
            got=last,
            where="headrace init --example movielens",
            do=f"Bring the file {WHEEL} (sha256 {SHA256}) by other means and put it into {cache_folder()}, then run this again.",
        )
    return folder / WHEEL


def _check(wheel: Path) -> None:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if digest != SHA256:
        raise Broken(
            expected=f"sha256 {SHA256}",
            got=digest,
            where=str(wheel),
            do="Remove the file; it is not the release this example was made for.",
        )
