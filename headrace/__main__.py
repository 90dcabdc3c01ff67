"""Start of the command line: ``headrace`` or ``python -m headrace``."""


def main() -> None:
    """Run the command line."""
    from headrace.cli.app import run

    run()


if __name__ == "__main__":
    main()
