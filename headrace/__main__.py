"""Start of the command line: ``headrace`` or ``python -m headrace``."""

import os
import sys


def main() -> None:
    """Run the command line."""
    forget_current_folder()
    from headrace.cli.app import run

    run()


def forget_current_folder() -> None:
    """``python -m`` puts the current folder in front of all packages. A project folder has a folder ``experiments``, which is
    also the name of one of ours: never import from there."""
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if sys.path and sys.path[0] in ("", os.getcwd()) and os.getcwd() != home:
        del sys.path[0]


if __name__ == "__main__":
    main()
