"""The conformance suite on the embedded log: as it is, with gaps in its offsets, and durable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams.contracts import Log
from streams.embedded.log import open_log
from tests.contracts.log_conformance import LOG_CONFORMANCE
from tests.contracts.log_helpers import MakeLog

SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gaps": {"skipped_offsets": 1},
    "power": {"durability": "power"},
}


@pytest.mark.parametrize("setting", SETTINGS, indirect=True)
class TestEmbeddedLog(*LOG_CONFORMANCE):
    @pytest.fixture
    def setting(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        return SETTINGS[request.param]

    @pytest.fixture
    def make_log(self, tmp_path: Path, setting: dict[str, Any]) -> Iterator[MakeLog]:
        opened: list[Log] = []

        def make() -> Log:
            opened.append(open_log(tmp_path / "log", **setting))
            return opened[-1]

        yield make
        for log in opened:
            log.close()
