"""Runs the program `hksim`."""

import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from hksim.frames import pandas


class HksimError(RuntimeError):
    """The program refused its input. The message is the program's."""


def program():
    """The path of the program: the variable HKSIM_PROGRAM, else that of this installation, else the first in PATH.

    Raises FileNotFoundError if there is none.
    """
    if named := os.environ.get("HKSIM_PROGRAM"):
        return named
    user = sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
    # `pip install --target` puts programs beside the module.
    beside = Path(__file__).parents[1] / "bin"
    for folder in [sysconfig.get_path("scripts"), user, beside]:
        path = Path(folder) / "hksim"
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    if found := shutil.which("hksim"):
        return found
    raise FileNotFoundError("the program hksim is not installed; install the wheel, or put the program in PATH")


def _words(flags):
    """Flags as words of a command line."""
    words = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            values = value if isinstance(value, (list, tuple)) else [value]
            words.append(f"{flag}={','.join(map(str, values))}")
    return words


def _output(command, files, flags, form):
    line = [program(), command, *map(os.fspath, files), *_words(flags), "--quiet", "--format", form]
    ran = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    # 1 is the status of a check that failed: there is a result.
    if ran.returncode not in (0, 1) or not ran.stdout:
        raise HksimError(ran.stderr.strip() or f"{' '.join(line)}: exit status {ran.returncode}")
    if ran.stderr:
        print(ran.stderr, end="", file=sys.stderr)
    return ran.stdout


def run(command, *files, **flags):
    """The JSON result of a command, as a dictionary: run("explain", "app.hkt", preset="hakmem").

    A flag has `_` for `-`. A list is joined by commas; True is a flag without a value; None and False leave it out. Raises
    HksimError if the program refuses its input. Notes of the program go to standard error.
    """
    return json.loads(_output(command, files, flags, "json"))


def _table(command, files, flags):
    pd = pandas()
    return pd.read_csv(io.StringIO(_output(command, files, flags, "csv")), keep_default_na=False, na_values=[""])


def sim(trace, **flags):
    """One simulation, as a data frame with one row. The columns are those of `hksim sim --format csv`."""
    return _table("sim", [trace], flags)


def sweep(*traces, **flags):
    """A sweep, as a data frame with a row for each design on each trace. Without traces, the two built-in workloads.

    The columns are those of `hksim sweep --format csv`.
    """
    return _table("sweep", traces, flags)
