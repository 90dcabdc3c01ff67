"""Prepares the environment of a process *before* numba or torch are imported: they read it once.

A model's bits depend on the number of threads, so it comes from the settings, never from the machine; the variables that
override it silently are refused.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from importlib.metadata import version
from pathlib import Path

from streams.errors import Usage

PACKAGES = ("streams", "experiments", "ingest", "preprocess", "cache", "trainer")
ROOT = Path(__file__).resolve().parent.parent


def prepare(environment: MutableMapping[str, str], *, threads: int) -> None:
    """Set what this process (or a child that gets ``environment``) needs; what the user set stays, except thread counts.

    Raises:
        Usage: ``OMP_DYNAMIC`` or ``OMP_THREAD_LIMIT`` is set: they override thread counts silently.
    """
    refuse(environment)
    environment.setdefault("NUMBA_CACHE_DIR", str(kernel_cache(environment)))
    environment.setdefault("NUMBA_THREADING_LAYER", "omp")  # workqueue aborts when two threads call it
    environment["OMP_NUM_THREADS"] = str(threads)
    environment["MKL_NUM_THREADS"] = str(threads)
    environment["MKL_DYNAMIC"] = "FALSE"
    environment.setdefault("GOMP_SPINCOUNT", "1000")  # spinning threads of several processes starve each other
    environment.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def refuse(environment: Mapping[str, str]) -> None:
    """Raise ``Usage`` for variables that change thread counts behind our back."""
    for name, harmless in (("OMP_DYNAMIC", ("", "false", "0", "no")), ("OMP_THREAD_LIMIT", ("",))):
        if environment.get(name, "").strip().lower() not in harmless:
            raise Usage(
                expected=f"{name} unset",
                got=f"{name}={environment[name]}",
                where="environment",
                do=f"Unset {name}: it overrides the number of threads silently, and with it the bits of the model.",
            )


def kernel_cache(environment: Mapping[str, str]) -> Path:
    """A writable folder for compiled kernels: the user's cache folder, else a temporary one. Its last part is the build id,
    because an edited callee does not invalidate the kernels that call it."""
    home = environment.get("HOME", "")
    base = environment.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    candidates = [Path(base) / "headrace"] if base else []
    candidates.append(Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}")
    for candidate in candidates:
        folder = candidate / "numba" / build_id()
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK | os.X_OK) and folder.stat().st_uid == os.getuid():
            return folder
    raise Usage(
        expected="a folder for compiled kernels that can be written",
        got=f"none of {', '.join(map(str, candidates))}",
        where="environment",
        do="Set NUMBA_CACHE_DIR to a folder that can be written.",
    )


def build_id() -> str:
    """16 hex digits over the sources that hold kernels, numba's version and Python's."""
    digest = hashlib.sha256(f"{sys.version_info[:3]} {version('numba')} {version('llvmlite')}".encode())
    for path in kernel_sources():
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def kernel_sources() -> list[Path]:
    """Sources whose change needs new kernels, sorted."""
    found = [path for package in PACKAGES for path in (ROOT / package).rglob("kernels/*.py")]
    return sorted([*found, ROOT / "trainer" / "dense.py"])
