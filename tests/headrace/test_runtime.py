from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace import runtime
from streams.errors import Usage


def test_what_is_set(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "OMP_NUM_THREADS": "7", "GOMP_SPINCOUNT": "5"}
    runtime.prepare(environment, threads=2)
    assert (environment["OMP_NUM_THREADS"], environment["MKL_NUM_THREADS"]) == ("2", "2")
    assert environment["GOMP_SPINCOUNT"] == "5"
    assert environment["NUMBA_THREADING_LAYER"] == "omp"
    assert environment["NUMBA_CACHE_DIR"] == str(tmp_path / ".cache/headrace/numba" / runtime.build_id())
    assert Path(environment["NUMBA_CACHE_DIR"]).is_dir()


@pytest.mark.parametrize(
    ("name", "value", "fine"),
    [
        ("OMP_DYNAMIC", "true", False),
        ("OMP_DYNAMIC", "TRUE", False),
        ("OMP_DYNAMIC", "1", False),
        ("OMP_DYNAMIC", "false", True),
        ("OMP_DYNAMIC", "", True),
        ("OMP_THREAD_LIMIT", "64", False),
        ("OMP_THREAD_LIMIT", "", True),
    ],
)
def test_what_overrides_threads_is_refused(name: str, value: str, fine: bool) -> None:
    if fine:
        runtime.refuse({name: value})
        return
    with pytest.raises(Usage, match=name):
        runtime.refuse({name: value})


def test_a_home_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    found = runtime.kernel_cache({"HOME": str(blocked)})
    assert found.is_relative_to(tmp_path / "tmp" / f"headrace-{os.getuid()}")
    monkeypatch.setattr("tempfile.tempdir", str(blocked))
    with pytest.raises(Usage):
        runtime.kernel_cache({"HOME": str(blocked)})


def test_the_build_id_covers_every_file_with_kernels() -> None:
    with_kernels = [
        path
        for package in runtime.PACKAGES
        for path in (runtime.ROOT / package).rglob("*.py")
        if "njit" in path.read_text()
    ]
    assert len(with_kernels) > 3
    assert set(with_kernels) <= set(runtime.kernel_sources())
