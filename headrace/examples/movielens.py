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

from streams.errors import Broken, Unreachable, Usage

PACKAGE, VERSION = "recbole", "1.2.1"
WHEEL = f"{PACKAGE}-{VERSION}-py3-none-any.whl"
SHA256 = "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
INSIDE = "recbole/dataset_example/ml-100k"
NAMES = {
    "ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
    "ml-100k.user": "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
    "ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
}
"""Files that are kept, and their sha256: a damaged copy is fetched again."""
FILES = 8
FETCH_S = 300
TERMS = (
    "MovieLens 100K by GroupLens (University of Minnesota), for research use under its own terms; "
    f"taken from the wheel {PACKAGE} {VERSION} (Harper and Konstan 2015, doi 10.1145/2827872)"
)


def cache_folder() -> Path:
    """Where data sets are kept: ``HEADRACE_DATA_DIR``, else ``$XDG_CACHE_HOME/headrace/datasets``, else below ``~/.cache``."""
    if named := os.environ.get("HEADRACE_DATA_DIR"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "headrace" / "datasets"


def write_data(folder: Path) -> None:
    """Ratings in (time, user, item) order in eight files; users and films. Says where the data comes from.

    Raises:
        Unreachable: the wheel cannot be fetched. Broken: it is not the one that is meant.
    """
    source = fetched(cache_folder() / "ml-100k")
    ratings_file, users_file, films_file = (source / name for name in NAMES)
    print(f"data: {TERMS}", file=sys.stderr)
    header, *ratings = ratings_file.read_text(encoding="utf-8").splitlines()
    ratings.sort(key=_moment)
    for number in range(FILES):
        part = ratings[len(ratings) * number // FILES : len(ratings) * (number + 1) // FILES]
        _write(folder / "ratings" / f"part-{number}.tsv", [header, *part])
    _write(folder / "users" / "users.tsv", users_file.read_text(encoding="utf-8").splitlines())
    header, *films = films_file.read_text(encoding="utf-8").splitlines()
    lines = [f"{header}\tgenre_set:token", *(f"{film}\t{'+'.join(film.split(chr(9))[3].split())}" for film in films)]
    _write(folder / "items" / "items.tsv", lines)


def _moment(line: str) -> tuple[float, int, int]:
    user, item, _, time = line.split("\t")
    return float(time), int(user), int(item)


def _write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def fetched(target: Path) -> Path:
    """The folder with the three files, fetched if it is not there yet. Two processes at once do no harm.

    Raises:
        Unreachable, Broken: as ``write_data``. Usage: the folder cannot be written.
    """
    if all(_is_whole(target / name) for name in NAMES):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch_folder = tempfile.TemporaryDirectory(dir=target.parent)
    except OSError as error:
        raise Usage(
            expected="a folder for data sets that can be written",
            got=error.strerror or str(error),
            where=str(target.parent),
            do="Name another in the variable HEADRACE_DATA_DIR.",
        ) from error
    with scratch_folder as scratch:
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


def _is_whole(file: Path) -> bool:
    return file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == NAMES[file.name]


def _download(folder: Path) -> Path:
    print(f"fetching MovieLens 100K (the wheel {PACKAGE} {VERSION}, 2 MB) …", file=sys.stderr)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--retries", "2", "--dest", str(folder), f"{PACKAGE}=={VERSION}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
        said = done.stderr.strip()
    except subprocess.TimeoutExpired:
        said = f"no answer within {FETCH_S} s"
    if not (folder / WHEEL).is_file():
        last = (said.splitlines() or ["no output"])[-1]
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
