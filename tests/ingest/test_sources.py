"""Folders."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from ingest.sources import Folder, FoundFile
from streams.errors import Usage
from tests.ingest.world import OLD_S, write


def paths(folder: Path, match: str = "*") -> list[str]:
    return [file.path for file in Folder(str(folder), match).list().files]


@pytest.mark.parametrize(
    ("match", "want"),
    [
        ("*", ["a.csv", "b.tsv"]),
        ("*.csv", ["a.csv"]),
        ("**/*", ["a.csv", "b.tsv", "dt=1/c.csv", "dt=1/x/d.csv"]),
        ("**/*.csv", ["a.csv", "dt=1/c.csv", "dt=1/x/d.csv"]),
        ("dt=*/*.csv", ["dt=1/c.csv"]),
        ("?.csv", ["a.csv"]),
        ("a[.]csv", []),
    ],
)
def test_globs(tmp_path: Path, match: str, want: list[str]) -> None:
    for name in ("a.csv", "b.tsv", "dt=1/c.csv", "dt=1/x/d.csv"):
        write(tmp_path / name, "x")
    listing = Folder(str(tmp_path), match).list()
    assert [file.path for file in listing.files] == want
    assert len(listing.files) + len(listing.unmatched) == 4


def test_missing_and_empty_folders(tmp_path: Path) -> None:
    assert not Folder(str(tmp_path)).list().missing
    assert Folder(str(tmp_path / "no")).list().missing
    assert not Folder(str(tmp_path / "no")).reachable()


def test_files_by_url(tmp_path: Path) -> None:
    write(tmp_path / "a b.csv", "hello")
    for url in (str(tmp_path), f"file://{tmp_path}", f"{tmp_path}/"):
        folder = Folder(url)
        (file,) = folder.list().files
        assert file == FoundFile("a b.csv", 5, OLD_S * 1_000_000) == folder.stat("a b.csv")
        with folder.open("a b.csv") as handle:
            assert handle.read() == b"hello"
        assert folder.settle_us == 2_000_000


def test_other_file_systems() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe("/in/x/a.csv", b"k\n1\n")
    memory.pipe("/in/_SUCCESS", b"")
    folder = Folder("memory://in", "**/*")
    (file,) = folder.list().files
    assert (file.path, file.size) == ("x/a.csv", 4)
    assert file.mtime_us > OLD_S * 1_000_000
    assert folder.settle_us == 30_000_000
    assert folder.fingerprint(file) == folder.fingerprint(file)
    with folder.open("x/a.csv") as handle:
        assert handle.read() == b"k\n1\n"


def test_fingerprints_see_size_and_both_ends(tmp_path: Path) -> None:
    seen = set()
    for data in (b"a" * 200_000, b"b" + b"a" * 199_999, b"a" * 199_999 + b"b", b"a" * 199_999, b"", b"a"):
        write(tmp_path / "f", data)
        folder = Folder(str(tmp_path))
        (file,) = folder.list().files
        seen.add(folder.fingerprint(file))
    assert len(seen) == 6


def test_unknown_schemes_say_what_to_do() -> None:
    with pytest.raises(Usage, match="nosuch"):
        Folder("nosuch://x/y")
