"""The project's own sources as syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAGES = ("streams", "experiments", "ingest", "preprocess", "cache", "trainer", "headrace")
"""In the order of data."""


@dataclass(frozen=True)
class Source:
    path: Path
    tree: ast.Module
    lines: int

    @property
    def stage(self) -> str:
        return self.path.parts[0]

    @property
    def module(self) -> str:
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources() -> tuple[Source, ...]:
    """All Python files of the seven stages; paths relative to the root."""
    found = []
    for stage in STAGES:
        for path in sorted((ROOT / stage).rglob("*.py")):
            text = path.read_text()
            found.append(Source(path.relative_to(ROOT), ast.parse(text), len(text.splitlines())))
    assert len(found) > 50, "the sources were not found"
    return tuple(found)


def imported(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(module, line) of every import, also inside functions and under TYPE_CHECKING. ``from a import b`` is ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            prefix = "." * node.level + (node.module or "")
            for alias in node.names:
                yield f"{prefix}.{alias.name}", node.lineno


Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.AST) -> Iterator[tuple[str, Function]]:
    """(qualified name, node) of all functions, nested ones too."""

    def inside(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Function):
                yield f"{prefix}{child.name}", child
            name = f"{child.name}." if isinstance(child, Function | ast.ClassDef) else ""
            yield from inside(child, prefix + name)

    yield from inside(tree, "")
