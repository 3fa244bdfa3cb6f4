"""mypy --strict on the package in $PYTHONPATH and on python_typed.py, which uses it. Skipped (77) without mypy."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CONFIGURATION = """[mypy]
strict = True
python_version = 3.9
[mypy-torch.*,ml_dtypes.*,pyarrow.*,google_crc32c.*,PIL.*,streaming.*,litdata.*,ffcv.*]
follow_imports = skip
ignore_missing_imports = True
"""

# Prefer mypy of this interpreter, which finds its NumPy; otherwise use the program mypy.
checker = [sys.executable, "-m", "mypy"]
if importlib.util.find_spec("mypy") is None or importlib.util.find_spec("numpy") is None:
    checker = [shutil.which("mypy") or ""]
if not checker[0]:
    print("mypy is not installed")
    sys.exit(77)

package = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0])
user = pathlib.Path(__file__).with_name("python_typed.py")

import loaderd  # noqa: E402

public = set(loaderd.__all__) | {"__version__"}
told = set(re.findall(r"\w+", user.read_text()))
resolved = vars(loaderd)  # lacks the names that need PyTorch, which python_typed.py covers
family = {name for name in public if isinstance(resolved.get(name), type) and issubclass(resolved[name], Exception)}
untold = public - family - told
if untold:
    sys.exit(f"{user} says nothing of {', '.join(sorted(untold))}")

with tempfile.TemporaryDirectory() as folder:
    configuration = pathlib.Path(folder, "mypy.ini")
    configuration.write_text(CONFIGURATION)
    command = [*checker, "--config-file", configuration, "--cache-dir", folder, package / "loaderd", user]
    sys.exit(subprocess.run(command, env={**os.environ, "MYPYPATH": str(package)}, check=False).returncode)
