"""Commands about what is published: ``plan``, ``publish``, ``list``, ``show``, ``retire``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.app import Options, app
from headrace.cli.output import note, show, table
from headrace.cli.specs import Json, Offline, load_specs, require_feeds

if TYPE_CHECKING:
    from experiments.publishing import Change
    from experiments.registry import Registry
    from experiments.view import Version
    from streams.contracts import Log

Files = Annotated[list[Path] | None, typer.Argument(metavar="[FILES]", help="Default: all of experiments/.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of a feed or an experiment.")]
_ACTIONS = {"changed": "changed: starts cold"}


@contextmanager
def project_log(options: Options, *, create: bool) -> Iterator[Log]:
    """The log of the project."""
    from headrace.project import open_project_log

    project = options.project()
    log = open_project_log(project, options.settings(project), create=create)
    try:
        yield log
    finally:
        log.close()


@contextmanager
def project_registry(options: Options) -> Iterator[tuple[Log, Registry]]:
    """The log and what is published in it."""
    from experiments.registry import Registry

    with project_log(options, create=False) as log:
        registry = Registry(log)
        registry.refresh()
        yield log, registry


@app.command()
def plan(context: typer.Context, files: Files = None, offline: Offline = False, as_json: Json = False) -> None:
    """Show what publishing would change.

    Each feed and experiment is new, unchanged, or changed; a changed experiment starts cold.

    Example: headrace plan experiments/ctr.yaml
    """
    from experiments.publishing import plan as plan_changes

    options: Options = context.obj
    feeds, experiments = load_specs(options.project(), files)
    require_feeds(feeds, offline=offline)
    # Without a log nothing was ever published; plan must not make one.
    with _registry_or_empty(options) as registry:
        changes = plan_changes(registry, list(experiments.values()), feeds)
    show({"changes": [_change(change) for change in changes]}, _changes_text(changes), as_json=as_json)


@app.command()
def publish(
    context: typer.Context,
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="Experiments to publish.")],
    as_json: Json = False,
) -> None:
    """Make experiments live.

    The feeds they need are published with them. Running workers pick them up.

    Example: headrace publish experiments/ctr.yaml
    """
    from experiments.publishing import publish as publish_all

    options: Options = context.obj
    feeds, experiments = load_specs(options.project(), files)
    if not experiments:
        raise typer.BadParameter(
            "expected files of experiments; feeds are published with the experiments that use them"
        )
    with project_log(options, create=True) as log:
        done = publish_all(log, list(experiments.values()), feeds, now_us=time.time_ns() // 1000)
    for warning in dict.fromkeys(warning for item in done for warning in item.warnings):
        note(f"note: {warning}")
    value = {"published": [_change(item.change) | {"warnings": list(item.warnings)} for item in done]}
    text = _changes_text([item.change for item in done])
    show(value, f"{text}\nNext: headrace run all --until-end", as_json=as_json)


@app.command("list")
def list_all(context: typer.Context, as_json: Json = False) -> None:
    """List what was published.

    Example: headrace list --json
    """
    with project_registry(context.obj) as (_, registry):
        feeds, versions = registry.feeds, registry.versions
    rows = [["feed", name, "", ""] for name in sorted(feeds)]
    rows += [["experiment", version.label, version.state, version.view.name] for version in versions]
    value = {
        "feeds": sorted(feeds),
        "experiments": [
            {"name": v.name, "version": v.number, "state": v.state, "view": v.view.name, "hash": v.hash}
            for v in versions
        ],
    }
    show(value, table(rows) or "Nothing is published.", as_json=as_json)


@app.command("show")
def show_one(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Show a published feed or experiment.

    It is shown as it is used, with all its versions.

    Example: headrace show deepfm
    """
    import yaml

    from experiments.view import canonical

    with project_registry(context.obj) as (_, registry):
        versions, feed = registry.versions_of(name), registry.feeds.get(name)
        known = sorted({*registry.feeds, *(version.name for version in registry.versions)})
    if not versions and feed is None:
        raise _unknown(name, known)
    value: dict[str, Any] = {"versions": [_version(version) for version in versions]} if versions else {}
    if feed is not None:
        value["feed"] = canonical(feed)
    show(value, yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120), as_json=as_json)


@app.command()
def retire(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Take an experiment out of service.

    The workers of its live version stop; its topics and checkpoints stay.

    Example: headrace retire lr
    """
    from experiments.publishing import retire as retire_one

    with project_log(context.obj, create=False) as log:
        version = retire_one(log, name, now_us=time.time_ns() // 1000)
    text = f"{version.label} is retired. Its checkpoints stay."
    show({"retired": {"name": version.name, "version": version.number}}, text, as_json=as_json)


@contextmanager
def _registry_or_empty(options: Options) -> Iterator[Registry]:
    from experiments.registry import Registry
    from streams.errors import Usage

    try:
        with project_registry(options) as (_, registry):
            yield registry
    except Usage as error:
        if error.expected != "something published":
            raise
        yield Registry(None)  # type: ignore[arg-type]


def _change(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "name": change.name,
        "action": change.action,
        "version": change.number or None,
        "retires": change.retires or None,
        "differences": [{"path": path, "old": old, "new": new} for path, old, new in change.differences],
    }


def _changes_text(changes: list[Change]) -> str:
    rows = []
    for change in changes:
        number = f" v{change.number}" if change.number else ""
        retires = f"v{change.retires} is retired" if change.retires else ""
        action = _ACTIONS.get(change.action, change.action) if change.kind == "experiment" else change.action
        rows.append([change.kind, f"{change.name}{number}", action, retires])
        rows += [
            ["", f"  {path}", f"{old or 'nothing'} → {new or 'nothing'}", ""] for path, old, new in change.differences
        ]
    return table(rows) or "Nothing to publish."


def _version(version: Version) -> dict[str, Any]:
    from experiments.fields import format_time
    from experiments.registry import version_content

    content = version_content(version)
    return content | {"published": format_time(content.pop("published_us"))}


def _unknown(name: str, known: list[str]) -> Exception:
    from experiments.loading import nearest
    from streams.errors import Usage

    return Usage(
        expected=f"one of {', '.join(known) or 'nothing: nothing is published'}",
        got=repr(name),
        where="headrace show",
        do=nearest(name, known) or "headrace list shows what is published.",
    )
