"""Caps on the tail: files, functions, parameters, nesting, inheritance. An exception needs a reason."""

from __future__ import annotations

import ast

import pytest

from tests.layout.source import Function, functions, sources

FILE_LINES, FUNCTION_LINES, PARAMETERS, NESTING, ANCESTORS = 600, 80, 6, 3, 2

MORE_PARAMETERS = {
    "headrace/cli/run.py:run_role": "typer takes each option of a command as a parameter",
    "headrace/cli/demo.py:demo": "typer takes each option of a command as a parameter",
    "ingest/planner.py:Planner.__init__": "two questions to the wiring besides what every worker gets",
}
DEEPER: dict[str, str] = {}
LONGER: dict[str, str] = {}

BLOCKS = (ast.If, ast.For, ast.While, ast.Try, ast.Match)
"""A ``with`` neither branches nor repeats, so it does not count."""


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Deepest nesting of blocks; an ``elif`` lies beside its ``if``. Nested functions count for themselves."""
    deepest = depth
    for name, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        for child in children:
            if not isinstance(child, ast.AST) or isinstance(child, Function | ast.ClassDef | ast.Lambda):
                continue
            chained = isinstance(node, ast.If) and name == "orelse" and len(children) == 1 and isinstance(child, ast.If)
            inner = depth + (isinstance(child, BLOCKS) and not chained)
            deepest = max(deepest, nesting(child, inner))
    return deepest


def parameters(function: Function) -> int:
    """Without self and cls."""
    args = function.args
    names = [arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")]) + bool(args.vararg) + bool(args.kwarg)


def is_kernel(function: Function) -> bool:
    """A compiled loop: it takes arrays one by one, because numba knows no config object."""
    return any(
        "njit" in ast.unparse(decorator) or "kernel" in ast.unparse(decorator) for decorator in function.decorator_list
    )


def all_functions() -> list[tuple[str, Function, bool]]:
    return [
        (f"{source.path}:{name}", node, "kernels" in source.path.parts)
        for source in sources()
        for name, node in functions(source.tree)
    ]


def test_files() -> None:
    assert {str(source.path): source.lines for source in sources() if source.lines > FILE_LINES} == {}


def test_functions() -> None:
    found = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node, _ in all_functions()}
    assert {name: lines for name, lines in found.items() if lines > FUNCTION_LINES and name not in LONGER} == {}


def test_parameters() -> None:
    found = {name: parameters(node) for name, node, kernel in all_functions() if not (kernel or is_kernel(node))}
    assert {name: count for name, count in found.items() if count > PARAMETERS and name not in MORE_PARAMETERS} == {}


def test_nesting() -> None:
    found = {name: nesting(node) for name, node, kernel in all_functions() if not (kernel or is_kernel(node))}
    assert {name: depth for name, depth in found.items() if depth > NESTING and name not in DEEPER} == {}


def test_inheritance() -> None:
    bases = {
        node.name: [ast.unparse(base).split(".")[-1].partition("[")[0] for base in node.bases]
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
    }

    def ancestors(name: str) -> int:
        return max((1 + ancestors(base) for base in bases[name] if base in bases and base != name), default=0)

    assert {name: ancestors(name) for name in bases if ancestors(name) > ANCESTORS} == {}


def test_exceptions_are_needed() -> None:
    """A list of exceptions that only grows is none."""
    known = {name: node for name, node, _ in all_functions()}
    assert all(parameters(known[name]) > PARAMETERS for name in MORE_PARAMETERS)
    assert all(nesting(known[name]) > NESTING for name in DEEPER)
    assert all((known[name].end_lineno or 0) - known[name].lineno + 1 > FUNCTION_LINES for name in LONGER)


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("def f():\n    return 1", 0),
        ("def f():\n    if a:\n        b()\n    elif c:\n        d()\n    elif e:\n        g()", 1),
        (
            "for a in b:\n  with c:\n    try:\n      d()\n    finally:\n      e()",
            2,
        ),
        ("def f():\n    if a:\n        def g():\n            if b:\n                c()\n", 1),
        ("def f():\n    if a:\n        b()\n    else:\n        if c:\n            d()\n        e()", 2),
    ],
)
def test_nesting_is_counted_right(text: str, depth: int) -> None:
    tree = ast.parse(text)
    assert nesting(tree.body[0] if isinstance(tree.body[0], ast.FunctionDef) else tree) == depth
