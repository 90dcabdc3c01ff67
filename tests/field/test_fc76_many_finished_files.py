"""Field case 76: 100 000 files in a folder: the first look takes seconds, and turns stay short."""

from __future__ import annotations

import time
from pathlib import Path

from ingest.sources import Folder

FILES = 100_000


def test_listing_of_many_files(tmp_path: Path) -> None:
    folders = [tmp_path / f"dt={number:02}" for number in range(100)]
    for folder in folders:
        folder.mkdir()
        for number in range(FILES // 100):
            (folder / f"{number:04}.csv").touch()
    began_s = time.monotonic()
    listing = Folder(str(tmp_path), "**/*.csv").list()
    assert time.monotonic() - began_s < 5.0
    assert len(listing.files) == FILES
