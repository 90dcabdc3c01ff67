"""``headrace checkpoint ls | show | verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.app import Options, app
from headrace.cli.output import show, table
from headrace.cli.specs import Json

checkpoints = typer.Typer(no_args_is_help=True, help="Look at checkpoints: ls, show, verify.", rich_markup_mode=None)
app.add_typer(checkpoints, name="checkpoint")

Which = Annotated[
    str,
    typer.Argument(metavar="WHICH", help="A name (its newest), name.v1, name.v1/STEP, or a checkpoint's folder."),
]


@checkpoints.command("ls")
def list_checkpoints(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Of one experiment only.")] = None,
    as_json: Json = False,
) -> None:
    """List checkpoints, newest first.

    Example: headrace checkpoint ls deepfm
    """
    from headrace.quantities import format_size
    from trainer.checkpoint.verify import list_checkpoints as checkpoints_of

    options: Options = context.obj
    found: list[dict[str, Any]] = []
    for folder in _version_folders(options.project().checkpoints, name):
        found += [{"version": folder.name} | listed.as_dict() for listed in checkpoints_of(folder)]
    rows = [["VERSION", "STEP", "ROWS", "SIZE", "CREATED", "DIGEST"]] + [
        [
            item["version"],
            f"{item['step']:,}",
            f"{item['rows']:,}" if item["rows"] is not None else "?",
            format_size(item["bytes"]),
            item["created"] or "",
            (item["model_digest"] or "")[:16] or f"damaged: {item['problem']}",
        ]
        for item in found
    ]
    show({"checkpoints": found}, table(rows) if found else "No checkpoints yet.", as_json=as_json)


@checkpoints.command("show")
def show_checkpoint(context: typer.Context, which: Which, as_json: Json = False) -> None:
    """Show one checkpoint: where in the log it stands, sizes, metrics by window.

    Example: headrace checkpoint show deepfm
    """
    from trainer.checkpoint.verify import show as show_path

    options: Options = context.obj
    found = show_path(find(options.project().checkpoints, which))
    show(found, _text(found), as_json=as_json)


@checkpoints.command("verify")
def verify_checkpoint(context: typer.Context, which: Which, as_json: Json = False) -> None:
    """Read all files of a checkpoint and compare them with what was written. Exit code 1 if anything differs.

    Example: headrace checkpoint verify deepfm
    """
    from trainer.checkpoint.verify import verify

    options: Options = context.obj
    path = find(options.project().checkpoints, which)
    problems = verify(path)
    value = {"path": str(path), "ok": not problems, "problems": [{"file": p.file, "what": p.what} for p in problems]}
    text = "\n".join(f"{path / problem.file}: {problem.what}" for problem in problems)
    show(value, text or f"{path} is whole.", as_json=as_json)
    if problems:
        raise typer.Exit(1)


def find(root: Path, which: str) -> Path:
    """The folder of a checkpoint. Raises ``Usage`` if there is none."""
    from streams.errors import Usage
    from trainer.folder import checkpoint_folders

    if Path(which).is_dir() and Path(which).name.isdigit():
        return Path(which)
    version, _, step = which.partition("/")
    folders = _version_folders(root, version)
    candidates = [path for folder in reversed(folders) for path in checkpoint_folders(folder)]
    if step:
        candidates = [path for path in candidates if step.isdigit() and int(path.name) == int(step)]
    if candidates:
        return candidates[0]
    known = ", ".join(folder.name for folder in _version_folders(root, None)) or "none"
    raise Usage(
        expected=f"a checkpoint of one of: {known}",
        got=repr(which),
        where=str(root),
        do="headrace checkpoint ls shows them.",
    )


def _version_folders(root: Path, name: str | None) -> list[Path]:
    """Folders ``name.v1``, ``name.v2`` … in order; all without a name."""
    found: list[tuple[str, int, Path]] = []
    for folder in root.iterdir() if root.is_dir() else ():
        stem, dot, number = folder.name.rpartition(".v")
        if dot and number.isdigit() and name in (None, stem, folder.name):
            found.append((stem, int(number), folder))
    return [folder for _, _, folder in sorted(found)]


def _text(found: dict[str, Any]) -> str:
    from headrace.quantities import format_size
    from headrace.result import quality

    metrics = {"auc": None, "auc_second_half": None, "log_loss": None, "base_log_loss": None} | found["metrics"]
    lines = [
        f"{found['experiment']} v{found['version']}, step {found['step']:,}, {found['rows']:,} rows, {found['created']}",
        f"  {found['path']}",
        f"  {quality(metrics)}",
        f"  model digest {found['model_digest']}",
        f"  bit-identical to an undisturbed run: {'yes' if found['bit_identical'] else 'no, the machine or settings changed'}",
        "  tables: " + ", ".join(f"{name} {rows:,} rows" for name, rows in found["tables"].items()),
        f"  {len(found['files'])} files, {format_size(sum(found['files'].values()))}",
        "  by window of rows: "
        + " ".join(f"{w['auc']:.3f}" if w["auc"] is not None else "-" for w in found["windows"]),
    ]
    return "\n".join(lines)
