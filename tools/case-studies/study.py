#!/usr/bin/env python3
"""Case studies: from a recording to advice, and what the advice is worth for the real program.

    tools/case-studies/study.py HKSIM [CASE...] [--rounds N] [--work FOLDER]

For each case: records the program, asks for advice, predicts the designs, replays them on the native allocator, and runs
the program itself on each design (`hksim run`), in turn, N rounds. Prints tables in Markdown. A program that is not
installed is skipped with its reason. Servers listen on loopback only."""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "traces/tools"))

from launch import ENVIRONMENT, Launcher  # noqa: E402
from programs import Cc1plus, Python  # noqa: E402
from servers import Redis  # noqa: E402


@dataclass
class Case:
    program: type
    question: str
    flags: list  # of `hksim advise`


# Only --huge never and thp are searched: other words need other modes of the machine than the usual one.
SPACE = ["--superslab", "256K..4M", "--slab", "16K,64K", "--huge", "never,thp"]
CASES = {
    "compiler": Case(Cc1plus, "the fewest page faults", [*SPACE, "--goal", "installs"]),
    "interpreter": Case(
        Python,
        "the fewest page faults with at most 10 % more memory than with 4K pages",
        [*SPACE, "--goal", "installs", "--limit", "rss RSS_4K+10%"],
    ),
    "server": Case(Redis, "the least memory with at most ten times the page faults", [*SPACE, "--goal", "rss", "--limit", "installs +900%"]),
}
DESIGNS = {"4K pages": ["--huge=never"], "default": []}


@dataclass
class Cost:
    faults: int
    rss_kib: int
    user_us: int
    system_us: int

    @staticmethod
    def read(file):
        return Cost(*map(int, file.read_text().split()))

    def after(self, start):
        """The cost without that of the same process up to `start`. The peak RSS is that of the whole process."""
        return Cost(self.faults - start.faults, self.rss_kib, self.user_us - start.user_us, self.system_us - start.system_us)


def median_and_range(runs, field, unit, digits):
    values = [getattr(run, field) / unit for run in runs]
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


class Study:
    def __init__(self, hksim, work, rounds):
        self.hksim, self.work, self.rounds = str(Path(hksim).resolve()), Path(work), rounds
        self.cost = self.work / "cost"
        source = Path(__file__).with_name("cost.c")
        subprocess.run(["cc", "-O2", "-o", self.cost, source], check=True)

    def ask(self, *words):
        """The JSON result of an hksim command."""
        done = subprocess.run([self.hksim, *map(str, words), "--format", "json"], cwd=self.work, capture_output=True, text=True, env=ENVIRONMENT)
        if done.returncode != 0:
            raise RuntimeError(f"hksim {' '.join(map(str, words))}: {done.stderr}")
        return json.loads(done.stdout)

    def study(self, name, case):
        program = case.program(self.work)
        if reason := program.missing():
            print(f"skipped: {name}: {reason}\n")
            return
        program.prepare()
        trace = self.work / f"{name}.hkt"
        expected = program.run(Launcher(words=[self.hksim, "record", "-q", "--accesses", "pages", "-o", str(trace), "--"]))
        rss_4k = self.ask("sim", trace, "--huge", "never")["rss_bytes_peak"]
        flags = [word.replace("RSS_4K+10%", str(rss_4k * 11 // 10)) for word in case.flags]
        advice = self.ask("advise", trace, *flags)
        advised = advice["winner"]["name"].split() or []
        designs = {**DESIGNS, "advised": advised}
        rows = {word: self.predicted_and_replayed(trace, words) for word, words in designs.items()}
        costs = self.costs(program, designs, expected)
        self.show(name, case, program, flags, advice, designs, rows, costs)
        assumed = {word: self.ask("sim", trace, "--touch", "all", *designs[word])["installs"]["total"] for word in ("4K pages", "advised")}
        print(f"If the program touched every byte of its blocks (`--touch all`): {assumed['advised'] - assumed['4K pages']:+} installs.\n")

    def predicted_and_replayed(self, trace, words):
        return self.ask("sim", trace, *words), self.ask("replay", trace, *words)

    def costs(self, program, designs, expected):
        """The costs of the program as it is and on each design, in turn; without those of `hksim run` before it starts."""
        whole, start_up = self.work / "whole", self.work / "start-up"
        starts = {"as it is": []} | {word: [self.hksim, "run", *words, "--"] for word, words in designs.items()}
        costs = {word: [] for word in starts}
        for _ in range(self.rounds):
            for word, start in starts.items():
                words = [str(self.cost), str(whole), *start, str(self.cost), "--start", str(start_up)]
                digest = program.run(Launcher(words=words))
                if digest != expected:
                    raise RuntimeError(f"{program.name}: other results on {word}")
                costs[word].append(Cost.read(whole).after(Cost.read(start_up)))
        return costs

    def show(self, name, case, program, flags, advice, designs, rows, costs):
        print(f"## {name}: {program.name} ({program.version()})\n\nQuestion: {case.question}. `hksim advise {name}.hkt {' '.join(flags)}`\n")
        print("\n".join(f"> {line}" for line in advice["text"]))
        print("\n| Allocator | Design | Installs predicted | replayed | RSS peak predicted, MiB | replayed | Faults of the program | RSS peak of the program, MiB | System ms | User ms |")
        print("|---|---|---|---|---|---|---|---|---|---|")
        for word, runs in costs.items():
            if word in rows:
                sim, replay = rows[word]
                figures = [sim["installs"]["total"], replay["installs"]["total"], f"{sim['rss_bytes_peak'] / 2**20:.2f}", f"{replay['rss_bytes_peak'] / 2**20:.2f}"]
                head = ["hksim", f"{word}: `{' '.join(designs[word])}`" if designs[word] else word]
            else:
                figures, head = ["-"] * 4, [program.allocator(), word]
            measured = [("faults", 1, 0), ("rss_kib", 1024, 2), ("system_us", 1000, 0), ("user_us", 1000, 0)]
            cells = [*head, *figures, *(median_and_range(runs, *column) for column in measured)]
            print("| " + " | ".join(map(str, cells)) + " |")
        before, after = rows["4K pages"][0]["installs"]["total"], rows["advised"][0]["installs"]["total"]
        measured = {word: statistics.median(run.faults for run in costs[word]) for word in ("4K pages", "advised")}
        print(f"\nFrom 4K pages to the advised design: {after - before:+} installs predicted, {measured['advised'] - measured['4K pages']:+.0f} faults measured.\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hksim")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--work")
    args = parser.parse_args()
    if unknown := [word for word in args.cases if word not in CASES]:
        parser.error(f"{unknown[0]}: cases are {', '.join(CASES)}")
    with tempfile.TemporaryDirectory() as folder:
        study = Study(args.hksim, args.work or folder, args.rounds)
        for name in args.cases or CASES:
            study.study(name, CASES[name])


if __name__ == "__main__":
    main()
