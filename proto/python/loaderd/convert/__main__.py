import io
import sys

from . import main

if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8
sys.exit(main())
