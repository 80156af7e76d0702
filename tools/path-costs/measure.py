"""Counts the instructions of the allocator's object by callgrind, and the paths that a simulation counts, by window."""

import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS_MAX = 900
NAME = re.compile(r"c?ob=(\(\d+\))(?: (.*))?")


def instructions_of(part, of):
    """Instructions in the code of the file `of` in one part of callgrind's output. The line after `calls=` has the
    instructions of the called function; they are counted there, too."""
    names, now, total, is_of_call = {}, None, 0, False
    with open(part, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line[0] in "0123456789+-*":
                if not is_of_call and now == of:
                    total += int(line.split()[1])
                is_of_call = False
            elif line.startswith(("ob=", "cob=")):
                number, name = NAME.match(line).groups()
                if name is not None:
                    names[number] = name
                if line.startswith("ob="):
                    now = names.get(number)
            elif line.startswith("calls="):
                is_of_call = True
    return total


class Tools:
    """The programs that measure."""

    def __init__(self, program):
        self.program = pathlib.Path(program).resolve()
        self.allocator = pathlib.Path(self.output("object").strip())

    def output(self, *words):
        """The output of the measuring program."""
        command = [self.program, *map(str, words)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        if ran.returncode:
            raise RuntimeError(f"{' '.join(map(str, command))}: {ran.stderr}")
        return ran.stdout

    def compiler(self):
        """The compiler that made the allocator, from the object itself."""
        return re.search(rb"rustc version [^\0]*", self.allocator.read_bytes()).group().decode()

    def replayed(self, trace, design, touch, window):
        """Instructions in the object in each window of a replay."""
        with tempfile.TemporaryDirectory(prefix="hksim-path-costs-") as folder:
            out = pathlib.Path(folder) / "out"
            command = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}", "--dump-before=hksim_window"]
            command += [self.program, "replay", self.allocator, trace, touch, str(window)]
            ran = subprocess.run(
                command,
                env={**os.environ, "HKSIM_NATIVE_POLICY": design},
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
            if ran.returncode:
                raise RuntimeError(f"{trace} under {design!r}: {ran.stderr}")
            # The first part ends before the first event, and the last is the end of the program.
            parts = sorted(pathlib.Path(folder).glob("out.*"), key=lambda part: int(part.suffix[1:]))
            return [instructions_of(part, str(self.allocator)) for part in parts[1:]]

    def counted(self, trace, design, touch, window):
        """The paths that a simulation counts in each window: their names, and rows of counts."""
        lines = self.output("count", trace, touch, window, design).splitlines()
        names, *rows = [line.split("\t") for line in lines]
        return names, [list(map(int, row)) for row in rows]

    def measured(self, trace, design, touch, window):
        """Names of paths, and for each window its counts and instructions."""
        names, rows = self.counted(trace, design, touch, window)
        instructions = self.replayed(trace, design, touch, window)
        if len(rows) != len(instructions):
            raise RuntimeError(f"{trace} under {design!r}: {len(rows)} windows counted, {len(instructions)} replayed")
        return names, list(zip(rows, instructions))


def imported(hksim, table, trace):
    """Makes a trace from a CSV table."""
    subprocess.run([hksim, "import", table, "--from", "csv", "-o", trace], check=True, capture_output=True)
