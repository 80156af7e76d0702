#!/usr/bin/env python3
"""Attaches hksim to running programs that count their own calls, in every way that it has, and compares; then attaches to
one server again and again, and compares what the server is before and after. Needs root.

    tools/attach-programs/attach.py HKSIM [--cycles 200]

Prints the tables of docs/lab/attach-programs.md. Exits with 1 if something differs.
"""

import argparse
import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent / "crates/record/tests/c/own_allocator.c"
sys.path.insert(0, str(HERE.parent.parent / "python/hksim"))
from hkm import Recording  # noqa: E402

LIBC, MAPPED = 8, 9  # places of the counts of rounds
OWN = "own_malloc,own_calloc,own_realloc,own_free,own_posix_memalign,pool_get=malloc@2,pool_put=free@2"
C_FUNCTIONS = "malloc,calloc,realloc,free"


class Program:
    """The program, running: it performs commands, and answers each with its counts."""

    def __init__(self, words):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask("n 1")
        self.pid = self.process.pid

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return [int(word) for word in self.process.stdout.readline().split()]

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


class Recorder:
    """hksim, attached. Returns when it records."""

    def __init__(self, hksim, words, output, nudge):
        command = [hksim, "record", *words, "-o", str(output), "--format", "json"]
        self.output, self.process = output, subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        nudge()

    def end(self):
        time.sleep(0.3)
        self.process.send_signal(signal.SIGINT)
        said = self.process.communicate(timeout=120)[1]
        if self.process.returncode != 0:
            raise RuntimeError(said)
        return json.loads(said[said.index("{"):])


def build(folder):
    """The program in all its builds: name and path."""
    builds = {
        "dynamic": ["cc"], "static": ["cc", "-static"], "static-pie": ["cc", "-static-pie", "-fPIE"], "musl": ["musl-gcc"],
    }  # fmt: skip
    for name, words in builds.items():
        flags = ["-O1", "-g", "-fno-builtin", "-pthread"]
        subprocess.run([*words, *flags, "-o", folder / name, SOURCE], check=True)
    go = dict(os.environ, CGO_ENABLED="0", GOCACHE=str(folder / "cache"), GO111MODULE="off")
    subprocess.run(["go", "build", "-o", folder / "go", HERE / "maps.go"], check=True, env=go)


def inside(pid):
    """The process that a process waits for: its only child, or itself."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else pid


PROGRAMS = [
    # What it is, words before the program, build, functions, commands that work.
    ("dynamic, one thread", [], "dynamic", None, ["n 2000"]),
    ("dynamic, 8 threads", [], "dynamic", None, ["t 8", "t 8"]),
    ("fork server, 20 children", [], "dynamic", None, ["f 100"] * 20),
    ("under memory load", [], "dynamic", None, ["t 4", "n 1000"]),
    ("in namespaces of its own", ["unshare", "--pid", "--mount", "--fork", "--mount-proc"], "dynamic", None, ["t 4"]),
    ("of another user", ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"], "dynamic", None, ["t 4"]),
    ("static", [], "static", C_FUNCTIONS, ["t 4", "f 200"]),
    ("static-pie, own allocator", [], "static-pie", OWN, ["t 4", "f 200"]),
    ("musl", [], "musl", C_FUNCTIONS, ["t 4", "f 200"]),
    ("static Go", [], "go", None, ["n 1000"]),
]


def call_rounds(hksim, output):
    """Rounds of libc's calls, and calls of the own allocator, in all traces of a recording."""
    folder = Path(f"{output}.processes")
    counts = Counter()
    for trace in [output, *sorted(folder.glob("*.hkt"))]:
        text = subprocess.run([hksim, "export", "--to", "csv", str(trace)], check=True, capture_output=True, text=True).stdout
        for row in csv.DictReader(io.StringIO(text)):
            counts[row["op"], row.get("size")] += 1
    return counts


def compare_calls(hksim, folder, name, before, build, functions, commands):
    """Calls of libc, or of the own allocator: (recorded, counted), or why not."""
    program = Program([*before, str(folder / build)])
    is_own = functions == OWN
    program.ask("k 0" if is_own else "k 1")
    pid = inside(program.pid) if before[:1] == ["unshare"] else program.pid
    output = folder / "calls.hkt"
    words = ["-p", str(pid)] + (["--functions", functions] if functions else [])
    counts = []

    def begin():
        # The recorder of calls begins at a call, and the one of functions when its probes are set: make calls until both have.
        time.sleep(1.0)
        program.ask("w 999")
        time.sleep(0.5)
        counts.append(program.ask("w 998"))

    recorder = Recorder(hksim, words, output, begin)
    for command in commands:
        counts.append(program.ask(command))
    try:
        report = recorder.end()
    except RuntimeError as why:
        program.end()
        return str(why).strip().splitlines()[-1]
    program.end()
    exported = call_rounds(hksim, output)
    rows = {size: number for (_, size), number in exported.items()}
    for file in [output, *Path(f"{output}.processes").glob("*")]:
        file.unlink()
    lost = sum(trace["quality"]["events_lost"] for trace in report["traces"])
    first, last = counts[0], counts[-1]
    if is_own:
        recorded = [rows.get(size, 0) for size in ("1077", "3234", "8079", "1080", "1082")]
        counted = [last[index] - first[index] for index in (0, 1, 2, 6, 5)]
        counted[3] = counted[0]
    else:
        recorded = [rows.get(size, 0) for size in ("3077", "3279", "8179")]
        counted = [last[LIBC] - first[LIBC]] * 3
    return recorded, counted, lost


def compare_pages(hksim, folder, before, build, commands):
    """Mappings of nine pages: (recorded, counted)."""
    program = Program([*before, str(folder / build)])
    program.ask("k 2")
    pid = inside(program.pid) if before[:1] == ["unshare"] else program.pid
    output = folder / "pages.hkm"
    counts = []

    def begin():
        time.sleep(1.5)
        counts.append(program.ask("k 2"))

    recorder = Recorder(hksim, ["--memory", "-p", str(pid)], output, begin)
    for command in commands:
        counts.append(program.ask(command))
    recorder.end()
    program.end()
    others = list(Path(f"{output}.processes").glob("*.hkm"))
    found, lost = Counter(), 0
    for file in [output, *others]:
        nine = set()
        for _, _, event, fields in Recording(file):
            if event == "map" and fields["pages"][1] - fields["pages"][0] == 9:
                found["maps"] += 1
                nine.add(fields["pages"][0])
            elif event == "unmap" and fields["pages"][1] - fields["pages"][0] == 9 and fields["pages"][0] in nine:
                found["unmaps"] += 1
            lost += fields["events"] if event == "lost" else 0
    for file in [output, *others]:
        file.unlink()
    rounds = counts[-1][MAPPED] - counts[0][MAPPED]
    return [found["maps"], found["unmaps"]], [rounds, rounds], lost


def hog():
    """A process that maps, touches and unmaps 256 MiB for ever."""
    code = "import mmap\nwhile True:\n m = mmap.mmap(-1, 256 << 20)\n for at in range(0, len(m), 4096): m[at] = 1\n m.close()"
    return subprocess.Popen([sys.executable, "-c", code])


def say(compared):
    if isinstance(compared, str):
        return compared.removeprefix("hksim: "), True
    recorded, counted, lost = compared
    text = f"{sum(recorded):,} of {sum(counted):,}".replace(",", " ")
    return text + (f", {lost} lost" if lost else ""), recorded == counted and lost == 0


def programs(hksim, folder):
    print("| Program | Calls: recorded of the program's own count | Mappings: recorded of the program's own count |\n|---|---|---|")
    is_right = True
    for name, before, build, functions, commands in PROGRAMS:
        load = hog() if "load" in name else None
        calls = say(compare_calls(hksim, folder, name, before, build, functions, commands))
        pages = say(compare_pages(hksim, folder, before, build, commands))
        if load:
            load.kill()
            load.wait()
        print(f"| {name} | {calls[0]} | {pages[0]} |", flush=True)
        is_right &= calls[1] and pages[1]
    return is_right


def state(pid):
    """What a process is, as far as others see it: threads, open files, mappings of files, tracer."""
    status = Path(f"/proc/{pid}/status").read_text()
    fields = {line.split(":")[0]: line.split(":")[1].strip() for line in status.splitlines()}
    files = sorted(os.readlink(f"/proc/{pid}/fd/{number}").split(":")[0] for number in os.listdir(f"/proc/{pid}/fd"))
    maps = [line.split(None, 5) for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    named = Counter(fields[5] for fields in maps if len(fields) > 5 and fields[5].startswith("/"))
    return {"threads": fields["Threads"], "tracer": fields["TracerPid"], "files": files, "maps": dict(named)}


class Redis:
    def __init__(self, folder):
        self.port = 6399
        words = ["redis-server", "--port", str(self.port), "--save", "", "--dir", str(folder), "--daemonize", "no"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        for _ in range(200):
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port))
                break
            except OSError:
                time.sleep(0.05)
        self.number = 0

    def right(self, rounds):
        """Whether so many answers are right."""
        for _ in range(rounds):
            self.number += 1
            value = f"value {self.number} " + "x" * (self.number % 3000)
            for command, expected in [(f"SET key{self.number % 500} \"{value}\"", "+OK"), (f"GET key{self.number % 500}", value)]:
                self.socket.sendall(command.encode() + b"\r\n")
                answer = b""
                while expected.encode() not in answer:
                    part = self.socket.recv(65536)
                    if not part:
                        return False
                    answer += part
        return True


def cycles(hksim, folder, number):
    """Attaches to one server in three ways in turn."""
    redis = Redis(folder)
    pid = redis.process.pid
    ways = {
        "calls": ["-p", str(pid), "--duration", "100ms"],
        "functions": ["-p", str(pid), "--functions", "zmalloc,zfree", "--duration", "100ms"],
        "pages": ["--memory", "-p", str(pid), "--duration", "100ms"],
    }
    tried = subprocess.run([hksim, "record", *ways["functions"], "-o", folder / "r"], capture_output=True, text=True)
    if "no function" in tried.stderr:
        ways["functions"][3] = C_FUNCTIONS  # its own functions have no symbols
    redis.right(1000)
    names, before, after_first, wrong = list(ways), state(pid), None, []
    for cycle in range(number):
        name = names[cycle % len(names)]
        recorder = subprocess.Popen([hksim, "record", *ways[name], "-o", folder / f"r.{name}"], stderr=subprocess.PIPE, text=True)
        while recorder.poll() is None:
            if not redis.right(20):
                wrong.append(f"{cycle} ({name}): an answer")
                break
        if recorder.wait(60) != 0:
            wrong.append(f"{cycle} ({name}): {recorder.stderr.read().strip()}")
        redis.right(200)
        now = state(pid)
        # The first recording of calls leaves its library, and each the last one's control page.
        library = {path: count for path, count in now["maps"].items() if "hksim-record-" in path}
        controls = [count for path, count in now["maps"].items() if path.endswith("/control (deleted)")]
        kept = lambda path: path not in library and not path.endswith("/control (deleted)")
        now["maps"] = {path: count for path, count in now["maps"].items() if kept(path)}
        after_first = after_first or library or None
        if now != before or sum(controls) > 1 or (after_first and library != after_first):
            wrong.append(f"{cycle} ({name}): {now} {library}")
    redis.process.terminate()
    redis.process.wait(30)
    print(f"\n{number} times attached to and detached from redis-server, in turn for calls, functions and pages, while it answered "
          f"{2 * redis.number} commands: {len(wrong)} differences in answers, threads, open files, mappings of files or tracer.")
    for line in wrong[:10]:
        print(line)
    return not wrong


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("hksim")
    arguments.add_argument("--cycles", type=int, default=200)
    given = arguments.parse_args()
    hksim = str(Path(given.hksim).resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        build(folder)
        is_right = programs(hksim, folder)
        is_right &= cycles(hksim, folder, given.cycles)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
