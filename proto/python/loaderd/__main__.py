"""`python -m loaderd steps`: prints the transforms of pipelines, for users without the manual page loaderd(1)."""

import argparse
import sys
from typing import List

from . import __version__, pipelines


def _steps(names: List[str]) -> None:
    known = pipelines()
    unknown = [name for name in names if name not in {step.name for step in known}]
    if unknown:
        sys.exit(f"loaderd: there is no step '{unknown[0]}'; 'python -m loaderd steps' lists all")
    chosen = [step for step in known if not names or step.name in names]
    width = max(len(argument.name) for step in known for argument in step.arguments)
    for step in chosen:
        print(f"{step.signature}\n    {step.text}")
        for argument in step.arguments:
            print(f"        {argument.name:{width}}  {argument.values}")
        print()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loaderd", description="Facts about the package loaderd.")
    parser.add_argument("--version", action="version", version=f"loaderd {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    steps = commands.add_parser("steps", help="list the steps of a pipeline with their arguments, defaults and bounds")
    steps.add_argument("name", nargs="*", help="list these alone")
    _steps(parser.parse_args().name)


if __name__ == "__main__":
    main()
