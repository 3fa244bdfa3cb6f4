"""The command line that the examples share."""

import argparse
import pathlib
import tempfile


def main(description, pack, train, make_source):
    """Packs the source that the command line names, or a small drawn one, and trains on it.

    pack(source, packed) writes the packed file; train(packed, steps) yields the loss of each step; make_source(folder) draws a source there and
    returns what to pack.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", type=pathlib.Path, help="data in the format above (default: a few dozen drawn shapes)")
    parser.add_argument("--steps", type=int, default=20, help="training steps (default: 20)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        packed = pathlib.Path(folder) / "train.pimg"
        pack(arguments.source or make_source(pathlib.Path(folder) / "source"), packed)
        for step, loss in enumerate(train(packed, arguments.steps)):
            print(f"step {step}: loss {loss:.3f}", flush=True)
