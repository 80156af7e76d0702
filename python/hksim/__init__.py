"""hksim from Python: runs the installed program, reads its files, and returns pandas data frames.

    table = hksim.sweep("app.hkt", huge=["never", "thp"])
    events = hksim.read_hkt("app.hkt")

The module can be imported without pandas; functions that return data frames then raise an ImportError that says so.
"""

from hksim.command import HksimError, program, run, sim, sweep
from hksim.frames import read_hkm, read_hkt

__all__ = ["HksimError", "program", "read_hkm", "read_hkt", "run", "sim", "sweep"]
