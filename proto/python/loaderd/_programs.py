"""Entry points of the programs in this package: for each, pip installs a script that calls one of these functions."""

import glob
import os
import sys
from typing import NoReturn

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def _become(name: str) -> NoReturn:
    os.execv(os.path.join(_PACKAGE, "bin", name), [name, *sys.argv[1:]])


def loaderd() -> NoReturn:
    _become("loaderd")


def loaderctl() -> NoReturn:
    _become("loaderctl")


def loaderbench() -> NoReturn:
    _become("loaderbench")


def packimg() -> NoReturn:
    _become("packimg")


def trainer() -> NoReturn:
    """Runs the trainer; unless set by the user, NVIDIA's libraries come from the packages of `pip install loaderd[cuda]`."""
    folders = sorted(glob.glob(os.path.join(os.path.dirname(_PACKAGE), "nvidia", "*", "lib")))
    if folders:
        os.environ.setdefault("LOADERD_CUDA_LIBRARIES", ":".join(folders))
    _become("trainer")
