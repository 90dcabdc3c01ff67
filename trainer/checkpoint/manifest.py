"""The manifest of a checkpoint: what it is, where in the log it stands, and the digest of each of its files.

``manifest.json`` is JSON that a person can read. Its field ``digest`` is the sha256 of the file's own bytes with that
digest replaced by 64 zeros, so one flipped bit anywhere in it is noticed; it holds the digests of all other files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from streams.errors import Broken
from trainer.contracts import PartitionPosition, Step, Tally
from trainer.scores import Chunk

FORMAT = 1
NAME = "manifest.json"
_NO_DIGEST = "0" * 64


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a checkpoint: its size, and xxh3-128 of its bytes as 32 hex digits."""

    bytes: int
    xxh3_128: str


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Which log and which topic the offsets belong to."""

    id: str
    topic: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """See the module.

    Args:
        experiment, version, hash: of the version. created_us: wall clock.
        step: steps so far. at: the last one.
        tables: rows by physical table. files: by path inside the folder.
        scores: chunks in order. metrics: as in ``status``.
        fingerprint: what the bits depend on. bit_identical: no start of this version so far had another one.
    """

    experiment: str
    version: int
    hash: str
    created_us: int
    step: int
    at: Step | None
    log: LogPlace
    partitions: tuple[PartitionPosition, ...]
    tally: Tally
    tables: Mapping[str, int]
    scores: tuple[Chunk, ...]
    metrics: Mapping[str, Any]
    model_digest: str
    fingerprint: Mapping[str, str]
    bit_identical: bool
    files: Mapping[str, FileEntry]


def to_bytes(manifest: Manifest) -> bytes:
    """The file's content, digest included."""
    body = {"format": FORMAT, "digest": _NO_DIGEST} | asdict(manifest)
    body["at"] = manifest.at and manifest.at._asdict()
    body["scores"] = [chunk._asdict() for chunk in manifest.scores]
    body["partitions"] = [
        asdict(position) | {"last": position.last and position.last._asdict()} for position in manifest.partitions
    ]
    text = json.dumps(body, indent=1, ensure_ascii=True, allow_nan=False).encode() + b"\n"
    return text.replace(_NO_DIGEST.encode(), hashlib.sha256(text).hexdigest().encode(), 1)


def from_bytes(content: bytes, where: str) -> Manifest:
    """Parse and check. Raises ``Broken`` for any changed byte or another format."""
    try:
        body = json.loads(content)
        digest, found = body.pop("digest"), body.pop("format")
        plain = content.replace(digest.encode(), _NO_DIGEST.encode(), 1)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _broken(where, "a manifest", f"{type(error).__name__}: {error}") from error
    if len(digest) != 64 or hashlib.sha256(plain).hexdigest() != digest:
        raise _broken(where, "the digest in its field digest", "another one: the file was changed")
    if found != FORMAT:
        raise _broken(where, f"format {FORMAT}", f"format {found}")
    try:
        return _from_json(body)
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(where, "the fields of a manifest", f"{type(error).__name__}: {error}") from error


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a checkpoint's folder; ``Broken`` if it is missing or damaged."""
    path = folder / NAME
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _broken(str(path), "a manifest", error.strerror or str(error)) from error
    return from_bytes(content, str(path))


def entry_of(path: Path) -> FileEntry:
    """Size and digest of a file, by reading it."""
    digest = xxhash.xxh3_128()
    size = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return FileEntry(size, digest.hexdigest())


def _from_json(body: dict[str, Any]) -> Manifest:
    step = body.pop("at")
    return Manifest(
        at=Step(**step) if step else None,
        log=LogPlace(**body.pop("log")),
        partitions=tuple(
            PartitionPosition(**(position | {"last": Step(**position["last"]) if position["last"] else None}))
            for position in body.pop("partitions")
        ),
        tally=Tally(**body.pop("tally")),
        scores=tuple(Chunk(**chunk) for chunk in body.pop("scores")),
        files={name: FileEntry(**entry) for name, entry in body.pop("files").items()},
        **body,
    )


def _broken(where: str, expected: str, got: str) -> Broken:
    return Broken(
        expected=expected,
        got=got,
        where=where,
        do="This checkpoint can't be used; the one before is.",
    )
