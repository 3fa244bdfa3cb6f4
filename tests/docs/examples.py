#!/usr/bin/env python3
"""Runs the Python examples in a document unchanged.

    examples.py [--whole] DOCUMENT FOLDER

DOCUMENT is a Markdown file of this tree, from which it takes the ```python blocks. They run in order in FOLDER, as one program; blocks with
prompts (>>>) are doctests. A file in this folder named after the document (proto-python-README.examples.sh) or its folder
(proto-python-howto.examples.sh) runs first and creates the files that the examples need. Skips and reports examples that need PyTorch,
torchvision or JAX if these are not installed. Exits with 77 if all are skipped or NumPy is missing; with --whole, if any imported package
is missing.
"""

import doctest
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import traceback

OPTIONAL = ("torch", "torchvision", "jax")


def run(name, block, names):
    """Returns whether the example ran; False if an optional package is missing."""
    if not block.startswith(">>>"):
        exec(compile(block, name, "exec"), names)
        return True
    # doctest does not distinguish a missing package from other failures.
    for optional in OPTIONAL:
        if re.search(rf"import {optional}\b|\.{optional}\(", block):
            __import__(optional)
    test = doctest.DocTestParser().get_doctest(block, names, name, None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, clear_globs=False)
    names.update(test.globs)
    if runner.summarize(verbose=False).failed:
        raise AssertionError("the output is another one, see above")
    return True


def missing(blocks):
    """Returns the packages that the examples import and that are not installed."""
    imported = {name for block in blocks for name in re.findall(r"^(?:import|from) (\w+)", block, re.MULTILINE)}
    return sorted(name for name in imported if importlib.util.find_spec(name) is None)


def main():
    whole = sys.argv[1] == "--whole"
    document, folder = (pathlib.Path(argument) for argument in sys.argv[1 + whole :])
    document = document.resolve()
    blocks = re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
    if not blocks:
        sys.exit(f"{document}: no examples found")
    if importlib.util.find_spec("numpy") is None:
        print(f"NumPy is not installed for {sys.executable}")
        sys.exit(77)
    if whole and missing(blocks):
        print(f"{document}: skipped, as these are not installed: {', '.join(missing(blocks))}")
        sys.exit(77)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    os.chdir(folder)
    here = pathlib.Path(__file__).resolve()
    name = "-".join(document.relative_to(here.parents[2]).with_suffix("").parts)
    own = here.with_name(f"{name}.examples.sh")
    makes = own if own.exists() else here.with_name(f"{name.rpartition('-')[0]}.examples.sh")
    subprocess.run(["bash", "-eu", makes], check=True)
    names, ran = {"__name__": "__main__"}, 0
    for number, block in enumerate(blocks, 1):
        try:
            ran += run(f"{document.name}, example {number}", block, names)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
            print(f"{document}: example {number} of {len(blocks)} is skipped, as {error.name} is not installed:\n{block}")
        except Exception:
            traceback.print_exc()
            sys.exit(f"{document}: example {number} of {len(blocks)} failed:\n{block}")
    print(f"{document}: {ran} of {len(blocks)} examples ran")
    sys.exit(0 if ran else 77)


main()
