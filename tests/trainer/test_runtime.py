from __future__ import annotations

import numba
import pytest
import torch

from streams.errors import Usage
from trainer.runtime import differences, fingerprint, prepare


def test_prepare_sets_both() -> None:
    try:
        prepare(1)
        assert (torch.get_num_threads(), numba.get_num_threads()) == (1, 1)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.set_deterministic_debug_mode("default")


@pytest.mark.parametrize(
    ("name", "value"), [("OMP_DYNAMIC", "true"), ("OMP_DYNAMIC", "TRUE"), ("OMP_THREAD_LIMIT", "4")]
)
def test_what_overrides_threads_silently_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(Usage, match=name):
        prepare(1)


def test_harmless_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_DYNAMIC", "false")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    prepare(1)
    first = fingerprint(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert differences(first, fingerprint(1)) == []


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_threads_in_range(threads: int) -> None:
    with pytest.raises(Usage, match="threads"):
        prepare(threads)


def test_differences_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    now = fingerprint(1)
    assert now["torch"] == torch.__version__
    assert now["cpu_flags"]
    assert differences(now, now) == []
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert differences(now, fingerprint(2)) == ["threads: 1 then, 2 now", "MKL_CBWR: unset then, COMPATIBLE now"]
    assert differences(now, {k: v for k, v in now.items() if k != "torch"}) == [
        f"torch: {torch.__version__} then, unset now"
    ]
