"""The command ``anyfn``, also ``python -m anyfn``."""

import argparse

from . import __version__


def main(args=None):
    """Runs the command with these arguments, those of the process by default; its exit code."""
    parser = argparse.ArgumentParser(prog="anyfn", description="Define a function in any language, call it from any other.")
    parser.add_argument("--version", action="version", version=f"anyfn {__version__}")
    parser.parse_args(args)
    parser.print_help()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
