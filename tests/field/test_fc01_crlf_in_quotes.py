"""Field case 1: a line end inside a quoted value comes back byte for byte, whatever block edge it falls on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.contracts import Config
from tests.ingest.world import read_text

COLUMNS = {"id": "int64", "s": "string", "p": "string"}


@pytest.mark.parametrize("block", [48, 64, 100])
@pytest.mark.parametrize("ending", ["\r\n", "\n", "\r", "\r\r\n", '""', ',"",'])
def test_values_are_exact_at_every_edge(tmp_path: Path, block: int, ending: str) -> None:
    for shift in range(16):
        pad = "x" * max(0, block - 24 + shift)
        data = f'id,s,p\n0,a,b\n1,"{pad}{ending}tail",q\n2,"{ending}",r\n3,y,"z{ending}"\n'.encode()
        got = read_text(tmp_path, data, COLUMNS, Config(part_bytes=block, split_bytes=block, part_rows=2))
        value = ending.replace('""', '"')
        assert got.rows == {
            0: {"id": 0, "s": "a", "p": "b"},
            1: {"id": 1, "s": f"{pad}{value}tail", "p": "q"},
            2: {"id": 2, "s": value, "p": "r"},
            3: {"id": 3, "s": "y", "p": f"z{value}"},
        }
        assert not got.letters
