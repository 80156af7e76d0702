#!/usr/bin/env python3
"""What `advise --on` promises, and what the program keeps: redis, a Python batch and a C++ compiler; and the regret of the
choice on each of our recordings, held out.

    tools/case-studies/allocators.py HKSIM [redis|batch|compiler|regret ...] [--budget TIME] [--work FOLDER]

Each session records the program, lets `advise --on` choose among the installed allocators and their settings by replays, and
ends with its `--trial`: the program on its present allocator and on the choice. `--budget` bounds the timed rounds of each
replay and trial. Prints Markdown. A program that is not installed is skipped with its reason. redis listens on loopback
only."""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALLOCATORS = "glibc,jemalloc,mimalloc,gperftools"
PORT = 7391

# Keys of some 150 bytes: all, then half of them deleted, then set again with longer values.
FILL = "for i=1,ARGV[1] do redis.call('set','key:'..i,string.rep('x',100+i%97)) end"
DELETE = "for i=1,ARGV[1],2 do redis.call('del','key:'..i) end"
REFILL = "for i=1,ARGV[1],2 do redis.call('set','key:'..i,string.rep('y',200+i%89)) end"
KEYS = 200_000

BATCH = """
for step in range(30):
    data = bytearray((33 + step % 16) << 20)
    data[::4096] = b'x' * len(data[::4096])
"""

CPP = """
#include <map>
#include <string>
#include <unordered_map>
#include <vector>
#include <algorithm>
#include <regex>
template <int N> struct Table { std::map<std::string, std::vector<std::unordered_map<int, Table<N - 1>>>> next; };
template <> struct Table<0> { std::string name; };
int main(int argc, char **argv) {
    Table<9> table;
    std::regex words("[a-z]+(,[0-9]+)*");
    std::vector<std::string> all(argv, argv + argc);
    std::sort(all.begin(), all.end());
    for (auto &one : all) if (std::regex_match(one, words)) table.next[one].resize(one.size());
    return table.next.size();
}
"""


@dataclass
class Session:
    command: list
    present: str = "glibc"
    # A shell command that loads a server, and one that succeeds when it is ready.
    load: str = ""
    ready: str = ""
    needs: list = field(default_factory=list)


def sessions(work):
    cli = f"redis-cli -p {PORT}"
    steps = [f'{cli} eval "{script}" 0 {KEYS}' for script in (FILL, DELETE, REFILL)]
    source = work / "tables.cpp"
    source.write_text(CPP)
    compiler = ["cc1plus"]
    if shutil.which("g++"):
        # Not `g++`: it starts the compiler as another program, without these folders.
        asked = lambda word: subprocess.run(["g++", word], capture_output=True, text=True, check=True).stdout.strip()  # noqa: E731
        compiler = [asked("-print-prog-name=cc1plus"), "-imultiarch", asked("-print-multiarch")]
    return {
        "redis": Session(
            ["redis-server", "--port", str(PORT), "--bind", "127.0.0.1", "--save", "", "--dir", str(work), "--lua-time-limit", "0"],
            "jemalloc",
            "{ " + " && ".join(steps) + "; } >/dev/null",
            f"{cli} ping",
            ["redis-server", "redis-cli"],
        ),
        # Not through a shim that starts another program.
        "batch": Session([sys.executable, "-S", "-c", BATCH], needs=[sys.executable]),
        "compiler": Session([*compiler, "-quiet", "-O2", str(source), "-o", "/dev/null"], needs=[compiler[0]]),
    }


class Advisor:
    def __init__(self, hksim, work, budget):
        self.hksim, self.work, self.budget = str(Path(hksim).resolve()), work, budget

    def json(self, command, *words):
        # The flag stands first: what follows `--` belongs to the program.
        done = subprocess.run([self.hksim, command, "--format", "json", *words], cwd=self.work, capture_output=True, text=True)
        # 1: nothing meets the limits, or a row failed.
        if done.returncode not in (0, 1) or not done.stdout:
            raise RuntimeError(f"hksim {command} {' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)

    def record(self, name, session):
        trace = self.work / f"{name}.hkt"
        recorder = [self.hksim, "record", "-q", "-o", str(trace), "--", *session.command]
        if not session.load:
            subprocess.run(session.command, check=True, stdout=subprocess.DEVNULL, cwd=self.work)
            subprocess.run(recorder, check=True, stdout=subprocess.DEVNULL, cwd=self.work)
            return trace
        server = subprocess.Popen(recorder, stdout=subprocess.DEVNULL, cwd=self.work)
        wait = f"for i in $(seq 300); do {session.ready} >/dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1"
        subprocess.run(["sh", "-c", wait], check=True)
        subprocess.run(["sh", "-c", session.load], check=True)
        subprocess.run(["redis-cli", "-p", str(PORT), "shutdown", "nosave"], check=False, capture_output=True)
        server.wait(timeout=60)
        return trace

    def tried(self, name, session, goal):
        trace = self.record(name, session)
        supervision = ["--ready", session.ready, "--load", session.load] if session.load else []
        return self.json(
            "advise", str(trace), "--on", ALLOCATORS, "--present", session.present, "--goal", goal, "--budget", self.budget,
            "--trial", *supervision, "--", *session.command,
        )


def mib(value):
    return "-" if value is None else f"{value / 2**20:.1f}"


def word(is_kept):
    return {True: "yes", False: "no", None: "unknown"}[is_kept]


def ratio(estimate):
    if not estimate:
        return "-"
    ends = "" if estimate.get("low") is None else f" ({estimate['low']:.3f} to {estimate['high']:.3f})"
    return f"{estimate['median']:.3f}{ends}"


def row_of_promise(name, goal, advice):
    chosen = advice["rows"][advice["choice"]] if advice["choice"] is not None else None
    allocator = "none" if chosen is None else " ".join(filter(None, [chosen["allocator"], chosen["setting"]]))
    if not (advice.get("trial") and advice["trial"].get("promises")):
        return f"| {name} | {goal} | {allocator} | {advice['text'][0]} | | | | |"
    promise = advice["trial"]["promises"][0]
    measured = " to ".join(map(mib, promise["rss_bytes_measured"] or [])) or "-"
    kept = ", ".join(f"{what} {word(promise[is_kept])}" for what, is_kept in (("time", "is_ratio_kept"), ("RSS", "is_rss_kept")))
    return (
        f"| {name} | {goal} | `{allocator}` | {ratio(promise['ratio_promised'])} | {ratio(promise['ratio_measured'])} | "
        f"{mib(promise['rss_bytes_promised'])} | {measured} | {kept} |"
    )


def print_promises(advisor, names):
    print("| Program | Goal | Choice | Time promised | Time measured | Peak RSS promised, MiB | measured, MiB | Kept |")
    print("|---|---|---|--:|--:|--:|--:|---|")
    known = sessions(advisor.work)
    for name in names:
        missing = [program for program in known[name].needs if not shutil.which(program)]
        if missing:
            print(f"| {name} | | skipped: {', '.join(missing)} not installed | | | | | |")
            continue
        for goal in ("time", "rss"):
            print(row_of_promise(name, goal, advisor.tried(name, known[name], goal)), flush=True)
    print()


def print_regret(advisor):
    traces = sorted(str(path) for path in (ROOT / "traces").glob("*.hkt"))
    for goal in ("time", "rss"):
        advice = advisor.json("advise", *traces, "--on", ALLOCATORS, "--goal", goal, "--budget", advisor.budget)
        chosen = advice["rows"][advice["choice"]]["allocator"] if advice["choice"] is not None else "none"
        print(f"Goal: {goal}. On all ten: `{chosen}`. {' '.join(advice['text'])}\n")
        print("| Held out | Chosen on the other nine | Regret | To the present |")
        print("|---|---|--:|--:|")
        for held in advice["held_out"]:
            row = advice["rows"][held["chosen"]] if held["chosen"] is not None else {"allocator": "none", "setting": None}
            name = " ".join(filter(None, [row["allocator"], row["setting"]]))
            percent = lambda value: "-" if value is None else f"{100 * value:+.1f} %"  # noqa: E731
            present = held["ratio_to_present"]
            print(f"| {Path(held['trace']).name} | `{name}` | {percent(held['regret'])} | {percent(None if present is None else present - 1)} |")
        print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hksim")
    parser.add_argument("session", nargs="*", choices=["redis", "batch", "compiler", "regret", []])
    parser.add_argument("--budget", metavar="TIME", default="20s")
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    names = given.session or ["redis", "batch", "compiler", "regret"]
    load = os.getloadavg()[0]
    print(f"{datetime.date.today()}, {os.cpu_count()} processors, load before {load:.1f}, --budget {given.budget}\n")
    with tempfile.TemporaryDirectory() as folder:
        work = given.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        advisor = Advisor(given.hksim, work.resolve(), given.budget)
        programs = [name for name in names if name != "regret"]
        if programs:
            print_promises(advisor, programs)
        if "regret" in names:
            print_regret(advisor)


if __name__ == "__main__":
    main()
