"""All rows: each module rows_NAME.py has a function rows()."""

import importlib
import pathlib


def all_rows():
    modules = sorted(path.stem for path in pathlib.Path(__file__).parent.glob("rows_*.py"))
    return [row for module in modules for row in importlib.import_module(module).rows()]
