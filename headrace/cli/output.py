"""What a command prints: one object on stdout with ``--json``, else text; errors in one shape."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from streams.errors import EXIT_USAGE, EXIT_WORK_FAILED, HeadraceError

EXIT_INTERRUPTED = 130


def print_object(value: object) -> None:
    """One JSON object on stdout, whole or not at all."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=None)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Text for people on stdout."""
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Text for people beside the result, on stderr."""
    sys.stderr.write(text.rstrip("\n") + "\n")
    sys.stderr.flush()


def show(value: object, text: str, *, as_json: bool) -> None:
    """The result of a reading command."""
    print_object(value) if as_json else print_text(text)


def table(rows: list[list[str]], *, indent: str = "") -> str:
    """Columns padded to their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(indent + line for line in lines)


def error_text(error: HeadraceError) -> str:
    """The block for people: what was expected, what came, where, what to do."""
    if type(error).__str__ is not HeadraceError.__str__ and type(error).__str__ is not Exception.__str__:
        return f"headrace: {error}"  # it lists several problems itself
    return "\n".join(
        [
            "headrace: error",
            f"  expected  {error.expected}",
            f"  got       {error.got}",
            f"  where     {error.where}",
            f"  do        {error.do}",
        ]
    )


def report_error(error: BaseException, *, as_json: bool, debug: bool) -> int:
    """Print an error in the promised shape; the exit code."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, HeadraceError):
        _say(error_text(error), error.as_dict(), as_json=as_json, problems=getattr(error, "listed", list)())
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    if hasattr(error, "format_message"):  # the command line itself was wrong
        if type(error).__name__ == "NoArgsIsHelpError":
            note(str(error.format_message()))
            return EXIT_USAGE
        context = getattr(error, "ctx", None)
        command = getattr(context, "command_path", "headrace")
        message, do = str(error.format_message()), f"{command} --help shows what there is."
        body = {"expected": "a command line as in --help", "got": message, "where": command, "do": do}
        _say(f"{command}: {message}\n  do        {do}", body | {"exit_code": EXIT_USAGE}, as_json=as_json)
        return EXIT_USAGE
    message = f"{type(error).__name__}: {error}"
    do = "Run it again with --debug before the command to see where: headrace --debug ..."
    body = {"expected": "no error", "got": message, "where": "headrace", "do": do, "exit_code": EXIT_WORK_FAILED}
    _say(f"headrace: {message}\n  do        {do}", body, as_json=as_json)
    return EXIT_WORK_FAILED


def _say(text: str, body: dict[str, Any], *, as_json: bool, problems: Sequence[Any] = ()) -> None:
    note(text)
    if as_json:
        print_object({"error": body} | ({"problems": list(problems)} if problems else {}))
