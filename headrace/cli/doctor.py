"""``headrace doctor``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from headrace.cli.app import Options, app
from headrace.cli.output import note, show
from headrace.cli.specs import Json

_SIGNS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


@app.command()
def doctor(
    context: typer.Context,
    warm: Annotated[
        bool, typer.Option("--warm", help="Compile all kernels now, so that the first run need not.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check the machine and the installation. Exit code 1 if something is bad.

    Example: headrace doctor --warm
    """
    from headrace import runtime
    from headrace.doctor import examine, services
    from headrace.doctor import warm as warm_up
    from streams.errors import HeadraceError

    options: Options = context.obj
    try:
        project = options.project()
    except HeadraceError:
        if options.directory is not None:
            raise
        project = None
    findings = list(examine(project))
    if project is not None:
        findings += services(options.settings(project), project.root)
    if warm and not any(finding.level == "bad" for finding in findings):
        settings = options.settings(project)
        runtime.prepare(os.environ, threads=settings.train.threads)
        note("compiling kernels; the first time it takes up to a minute")
        from headrace.warming import run_small_chain

        findings.append(warm_up(lambda: run_small_chain(settings)))
    lines = [f"{_SIGNS[f.level]}  {f.what}" + (f"\n      {f.do}" if f.do else "") for f in findings]
    bad = any(finding.level == "bad" for finding in findings)
    show({"ok": not bad, "findings": [finding.as_dict() for finding in findings]}, "\n".join(lines), as_json=as_json)
    if bad:
        raise typer.Exit(1)
