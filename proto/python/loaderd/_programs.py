"""The programs in this package as commands: pip puts a script on the PATH for each, which ends in a call of one of these."""

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
    """Where it has not been told of any, it finds NVIDIA's libraries in the packages that `pip install loaderd[cuda]` brings."""
    folders = sorted(glob.glob(os.path.join(os.path.dirname(_PACKAGE), "nvidia", "*", "lib")))
    if folders:
        os.environ.setdefault("LOADERD_CUDA_LIBRARIES", ":".join(folders))
    _become("trainer")
