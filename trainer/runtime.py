"""What makes two processes compute the same bits: threads, determinism settings, and a record of the machine.

The bits of a model depend on library versions, the kind of CPU, the number of threads and a few environment variables.
They are fixed here, written into each checkpoint, and compared on resume.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numba
import torch

from streams.errors import Usage

PACKAGES = ("numpy", "numba", "llvmlite", "headrace")

VARIABLES = (
    "MKL_CBWR",
    "ATEN_CPU_CAPABILITY",
    "MKL_ENABLE_INSTRUCTIONS",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
    "NPY_DISABLE_CPU_FEATURES",
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
)
"""They change instructions, hence rounding. OMP_* that change bits are refused by ``prepare``; the others do not."""

ADAM = "headrace-1"
"""Variant of the dense optimizer (``trainer.dense``)."""


def prepare(threads: int) -> None:
    """Fix the number of threads of torch and numba and turn on deterministic algorithms, for the whole process.

    Raises ``Usage`` where the environment would override that silently.
    """
    if os.environ.get("OMP_DYNAMIC", "").strip().lower() not in ("", "false", "0", "no"):
        raise _refused("OMP_DYNAMIC", "unset or false")
    if os.environ.get("OMP_THREAD_LIMIT", "").strip():
        raise _refused("OMP_THREAD_LIMIT", "unset")
    cores = int(numba.config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]
    if not 1 <= threads <= cores:
        raise Usage(
            expected=f"1 to {cores} threads (the cores of this machine)",
            got=str(threads),
            where="setting train.threads",
            do="Set it to at most the number of cores.",
        )
    torch.set_num_threads(threads)
    numba.set_num_threads(threads)
    torch.set_deterministic_debug_mode("error")  # as use_deterministic_algorithms, which imports sympy: 2 s, 76 MB
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def fingerprint(threads: int) -> dict[str, str]:
    """Everything the bits depend on, as text by name."""
    model, flags = _cpu()
    return {
        "torch": torch.__version__,
        **{name: _version(name) for name in PACKAGES},
        "libc": "-".join(platform.libc_ver()),
        "python": platform.python_version(),
        "cpu": model,
        "cpu_flags": flags,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": str(threads),
        "ranks": "1",
        "adam": ADAM,
        **{name: os.environ.get(name, "") for name in VARIABLES},
    }


def differences(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """What differs, one text each: ``threads: 1 then, 2 now``."""
    names = [*saved, *(name for name in now if name not in saved)]
    return [
        f"{name}: {saved.get(name) or 'unset'} then, {now.get(name) or 'unset'} now"
        for name in names
        if saved.get(name, "") != now.get(name, "")
    ]


def _cpu() -> tuple[str, str]:
    """Model name and flags of the first core; flags sorted, as one text."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        return platform.processor(), ""
    number = "/".join(fields.get(name, "?") for name in ("vendor_id", "cpu family", "model", "stepping"))
    return f"{fields.get('model name', platform.machine())} ({number})", " ".join(
        sorted(fields.get("flags", "").split())
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _refused(variable: str, expected: str) -> Usage:
    return Usage(
        expected=f"{variable} {expected}",
        got=f"{variable}={os.environ[variable]}",
        where="environment",
        do=f"Unset {variable}: it overrides the number of threads silently, and with it the bits of the model.",
    )
