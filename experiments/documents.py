"""YAML as specs use it: plain data with line numbers.

A subset: booleans are ``true`` and ``false`` only (YAML 1.2), no anchors, aliases or tags, no duplicate keys, capped in size,
depth and number of values. So a spec is data: nothing in it runs, and nothing in it grows.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from experiments.errors import Problem, SpecError

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 20
MAX_NODES = 50_000
MAX_DIGITS = 40

Path_ = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's booleans, numbers like 1e-3, and no times."""


_DROPPED = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag not in _DROPPED]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_DIGITS = list("-+0123456789")
_Loader.add_implicit_resolver(_DROPPED[0], re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
# 007 stays a text: an id with leading zeros is no number.
_Loader.add_implicit_resolver(_DROPPED[1], re.compile(r"^[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)$"), _DIGITS)
_WHOLE, _EXPONENT = r"[0-9]+(?:_[0-9]+)*", r"[eE][-+]?[0-9]+"
_Loader.add_implicit_resolver(
    _DROPPED[2],
    re.compile(rf"^[-+]?(?:(?:{_WHOLE}\.[0-9]*|\.[0-9]+)(?:{_EXPONENT})?|{_WHOLE}{_EXPONENT})$"),
    [*_DIGITS, "."],
)


@dataclass
class Document:
    """A spec file as plain data.

    Args:
        file: as shown in messages.
        data: the mapping at the top.
        lines: line (from 1) of each value, by its path.
    """

    file: str
    data: dict[str, object]
    lines: dict[Path_, int] = field(default_factory=dict)

    def line_of(self, path: Path_) -> int:
        """Line of a path, or of the nearest thing around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return 1


def read_document(path: Path) -> Document:
    """Read a spec file. Raises ``SpecError`` with line numbers for anything that is not a plain mapping."""
    name = str(path)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise _refused(name, 0, f"a spec of at most {MAX_BYTES} bytes", f"{size} bytes", "Is this the right file?")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _refused(
            name, 0, "a file", "no such file", "Check the path; `headrace list` shows what is published."
        ) from None
    except IsADirectoryError:
        raise _refused(name, 0, "a file", "a folder", f"Name the files: {name}/*.yaml") from None
    except UnicodeDecodeError as error:
        raise _refused(name, 0, "UTF-8 text", str(error), "Save the file as UTF-8.") from None
    except OSError as error:
        raise _refused(name, 0, "a readable file", error.strerror or str(error), "Check its rights.") from None
    return parse_document(text, name)


def parse_document(text: str, name: str) -> Document:
    """As ``read_document``, of a text."""
    try:
        _refuse_references(text, name)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        hint = "Indent with spaces." if "\\t" in str(error) or "'\\t'" in str(error) else ""
        raise _refused(name, line, "valid YAML", error.problem or str(error), hint) from None
    except yaml.YAMLError as error:
        raise _refused(name, 0, "valid YAML", str(error).replace("\n", " "), "") from None
    except RecursionError:
        raise _refused(name, 0, f"at most {MAX_DEPTH} levels", "far more", "") from None
    if node is None:
        raise _refused(
            name, 0, "a feed or an experiment", "an empty file", "`headrace init` shows what one looks like."
        )
    if not isinstance(node, yaml.MappingNode):
        raise _refused(
            name,
            1,
            "keys and values, such as `feed: NAME`",
            "a list" if isinstance(node, yaml.SequenceNode) else "a value",
            "",
        )
    document = Document(name, {})
    data = _Builder(document).build(node, ())
    assert isinstance(data, dict)
    document.data = data
    return document


def _refuse_references(text: str, name: str) -> None:
    """Anchors, aliases and tags, before anything is composed: an alias bomb never grows."""
    count, depth = 0, 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _refused(name, line, "plain values", "an anchor (&name) or alias (*name)", "Write the value out.")
        if tag := getattr(event, "tag", None):
            raise _refused(name, line, "plain values", f"the tag {tag}", "Leave the tag out.")
        count += isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _refused(name, line, f"at most {MAX_DEPTH} levels", "more", "")
        if count > MAX_NODES:
            raise _refused(name, line, f"at most {MAX_NODES} values", "more", "")


class _Builder:
    """Nodes → data, keeping the line of each value."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def build(self, node: yaml.Node, path: Path_) -> object:
        self.document.lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, (*path, index)) for index, child in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, object]:
        data: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise _refused(self.document.file, line, "a word as key", "a list or mapping", "")
            key = str(key_node.value)
            if key in data:
                first = self.document.lines[(*path, key)]
                where = f"it also stands in line {first}"
                raise _refused(self.document.file, line, f"the key {key!r} once", where, "Remove one of them.")
            data[key] = self.build(value_node, (*path, key))
            self.document.lines[(*path, key)] = line
        return data

    def _scalar(self, node: yaml.ScalarNode, path: Path_) -> object:
        text = str(node.value)
        kind = node.tag.rpartition(":")[2]
        if kind in ("int", "float"):
            number = (int if kind == "int" else float)(text.replace("_", "")) if len(text) <= MAX_DIGITS else math.inf
            if math.isinf(number):
                at, got = ".".join(map(str, path)), text if len(text) <= MAX_DIGITS else f"{len(text)} digits"
                problem = Problem(self.document.file, node.start_mark.line + 1, at, "a finite number", got)
                raise SpecError([problem])
            return number
        if kind == "bool":
            return text.lower() == "true"
        return None if kind == "null" else text


def _refused(file: str, line: int, expected: str, got: str, do: str) -> SpecError:
    return SpecError([Problem(file, line, "", expected, got, do)])
