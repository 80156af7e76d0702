#!/usr/bin/env python3
"""Validates random traces under random designs: the verdict of every `hksim validate` must be `ok` of class `exact`, or `skipped`.

    tools/random-designs/run.py [--pairs 3000] [--seed 1] [--jobs 2] [--modes] [--hksim target/release/hksim] [--keep FOLDER]

A pair is one trace and one design. Traces are random CSV files (with threads, touches, resizes, aligned blocks), random scripts, or parts of
the recordings in traces/. Designs are random in all policy flags, and some have forks. `--modes` (needs root) also randomises the machine's
settings: sizes of huge pages below 2 MiB, the THP mode, and the hugetlb pool. The settings are restored at the end. Nothing else may change
them meanwhile.

Prints the seeds, each pair that is neither ok nor skipped with the command that repeats it, and counts at the end. Exits with status 1 if
any pair failed.
"""

import argparse
import collections
import concurrent.futures
import csv
import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
THP = pathlib.Path("/sys/kernel/mm/transparent_hugepage")
POOL = pathlib.Path("/proc/sys/vm/nr_hugepages")
PAIR_SECONDS_MAX = 300


def random_size(draw, most):
    kind = draw.random()
    if kind < 0.55:
        return draw.randrange(0, 1100)
    doubling = draw.uniform(0, most.bit_length() - 0.01)
    return min(most, int(2**doubling))


class Program:
    """A random program, as rows of the CSV form."""

    def __init__(self, draw):
        self.draw = draw
        self.threads = draw.choice([1, 1, 2, 5])
        self.size_max = draw.choice([3_000, 60_000, 400_000, 5 << 20])
        self.live = {}
        self.free_ids = []
        self.time_ns = 0
        self.rows = []
        self.touches = draw.random() < 0.5

    def row(self, op, **fields):
        thread = self.draw.randrange(self.threads)
        self.time_ns += self.draw.choice([10, 200, 5_000, 40_000_000] if self.draw.random() < 0.05 else [10, 200])
        self.rows.append({"time_ns": self.time_ns, "thread": thread, "op": op, **fields})

    def birth(self):
        return self.draw.choice(["none", "first-byte", "all", "read", "read-then-write"]) if self.touches else "none"

    def allocate(self):
        number = self.free_ids.pop() if self.free_ids else len(self.live)
        size = random_size(self.draw, self.size_max)
        call, align = self.draw.choices(
            [("malloc", 0), ("calloc", 0), ("posix_memalign", self.draw.randrange(3, 22))], [8, 2, 1]
        )[0]
        self.row("alloc", object=number, size=size, align_log2=align, call=call, birth=self.birth())
        self.live[number] = size

    def change(self):
        number = self.draw.choice(list(self.live))
        kind = self.draw.random()
        if kind < 0.15:
            size = max(1, self.draw.choice([self.live[number] * 2, random_size(self.draw, self.size_max)]))
            self.live[number] = min(size, 4 * self.size_max)
            self.row("realloc", object=number, size=self.live[number], call="realloc", birth=self.birth())
        elif kind < 0.45 and self.touches and self.live[number]:
            size = self.live[number]
            # From the start, at the last byte, or from a random offset.
            offset = self.draw.choice([0, size - 1, self.draw.randrange(size)])
            count = min(size - offset, self.draw.choice([1, 8, 4096, 1 << 20]))
            access = self.draw.choice(["read", "write"])
            self.row("touch", object=number, offset=offset, bytes=count, access=access)
        else:
            del self.live[number]
            self.free_ids.append(number)
            self.row("free", object=number)

    def run(self, events):
        wanted = self.draw.choice([3, 40, 400])
        for at in range(events):
            if self.draw.random() < 0.002:
                self.row("thread-exit")
            wave = wanted if (at // (events // 3 + 1)) % 2 == 0 else wanted // 4
            if len(self.live) <= wave or not self.live:
                self.allocate()
            else:
                self.change()
        return self.rows


def write_csv(rows, path):
    columns = ["time_ns", "thread", "op", "object", "size", "align_log2", "call", "birth", "offset", "bytes", "access"]
    with open(path, "w", newline="", encoding="ascii") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def random_script(draw):
    live, lines, free = [], [], []
    for at in range(draw.choice([4, 12, 300])):
        kind = draw.random()
        if kind < 0.6 or not live:
            number = free.pop() if free else len(live)
            live.append(number)
            lines.append(f"a {number} {max(1, random_size(draw, 2 << 20))}")
        elif kind < 0.7:
            lines.append(f"r {draw.choice(live)} {max(1, random_size(draw, 2 << 20))}")
        else:
            number = live.pop(draw.randrange(len(live)))
            free.append(number)
            lines.append(f"f {number}")
    return lines


def random_design(draw):
    superslab = draw.choice([64 << 10, 128 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, 16 << 20, 32 << 20])
    slab = draw.choice([size for size in (16 << 10, 64 << 10, 256 << 10) if superslab // 512 <= size <= superslab])
    align = draw.choice(["arena", "arena", "arena", "trim", "kernel"])
    huge = ["never", "thp", "thp", "collapse"]
    if align == "arena":
        huge += ["hugetlb", "hugetlb-plain"]
    design = {
        "superslab": superslab,
        "slab": slab,
        "classes": draw.choice(["default", "hakmem", "linear", "spacing-2", "spacing-8", "8/16/24/40/200", "16/64/1008/5008"]),
        "header": draw.choice(["none", "none", "full", "light", "off"]),
        "header-bytes": draw.choice([1, 16]),
        "huge": draw.choice(huge),
        "prefault": draw.choice(["off", "off", "populate", "populate-write", "populate-read", "touch", "memset"]),
        "prefault-scope": draw.choice(["superslab", "slab", "init"]),
        "prewarm": draw.choice([0, 0, 2]) if superslab <= 4 << 20 else 0,
        "cache": draw.choice([0, 1, 4]),
        "huge-heaps": draw.choice([0, 1, 2, 8]),
        "huge-fill": draw.choice([0, 0, 50, 75, 100]),
        "warm-slabs": draw.choice([0, 0, 2]),
        "purge": draw.choice(["none", "dontneed", "free", "free", "unmap"]),
        "purge-delay": draw.choice(["0ns", "0ns", "10us", "100ms"]),
        "purge-curve": draw.choice(["step", "smoothstep"]),
        "purge-spans": draw.choice(["no", "yes"]),
        "align": align,
        "arena": draw.choice(["64M", "1G", "64G"]) if align == "arena" else "1G",
        "meta": draw.choice(["inband", "sidecar"]),
        "carve": draw.choice(["page", "bump", "eager"]),
        "free-order": draw.choice(["lifo", "fifo", "address"]),
        "slab-choice": draw.choice(["oldest", "newest", "fullest", "lowest"]),
        "front-cache": draw.choice([0, 0, 1, 3, 16, 255]),
        "startup-touch": draw.choice([0, 0, 3 << 20]),
        "huge-cache": draw.choice(["0", "1M", "64M"]),
    }
    return design


def random_forks(draw, events, align):
    if align != "arena" or draw.random() < 0.5:
        return []
    points = sorted(draw.sample(range(1, max(3, events)), min(draw.choice([1, 1, 2]), events - 1)))
    flags = ["--fork-at", ",".join(map(str, points))]
    # Only one child may run at a time.
    longest = points[1] - points[0] if len(points) > 1 else events
    if len(points) > 1 or draw.random() < 0.5:
        flags += ["--fork-for", str(draw.randrange(1, longest + 1))]
    return flags


class Pair:
    """One trace and one design, from one seed."""

    def __init__(self, seed, folder, hksim):
        self.seed, self.folder, self.hksim = seed, folder, hksim
        self.draw = random.Random(seed)
        self.trace = folder / f"{seed}.hkt"

    def hksim_run(self, *words):
        command = [self.hksim, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=PAIR_SECONDS_MAX, check=False)

    def make_trace(self):
        draw, kind = self.draw, self.draw.random()
        if kind < 0.65:
            source = self.trace.with_suffix(".csv")
            rows = Program(draw).run(draw.choice([20, 300, 3_000]))
            write_csv(rows, source)
            touched = any(row["op"] == "touch" for row in rows)
            made = self.hksim_run("import", source, "--from", "csv", "-o", self.trace)
            events = len(rows)
        elif kind < 0.85:
            source = self.trace.with_suffix(".script")
            lines = random_script(draw)
            source.write_text("\n".join(lines) + "\n", encoding="ascii")
            made, events, touched = self.hksim_run("import", source, "--from", "script", "-o", self.trace), len(lines), False
        else:
            recording = draw.choice(sorted((ROOT / "traces").glob("*.hkt")))
            start, events, touched = draw.randrange(0, 20_000), draw.choice([500, 5_000]), False
            made = self.hksim_run("trace", "cut", recording, "--events", f"{start}..{start + events}", "-o", self.trace)
        if made.returncode != 0:
            raise RuntimeError(f"seed {self.seed}: no trace: {made.stderr}")
        return events, touched

    def run(self):
        events, touched = self.make_trace()
        design = random_design(self.draw)
        touch = ["none", "first", "all", "read-then-all", "all-at-death"] + (["recorded"] * 4 if touched else [])
        flags = [word for name, value in design.items() for word in (f"--{name}", str(value))]
        flags += ["--touch", self.draw.choice(touch), *random_forks(self.draw, events, design["align"])]
        ran = self.hksim_run("validate", self.trace, *flags, "--format", "json")
        command = f"{self.hksim} validate {self.trace} {' '.join(flags)}"
        try:
            row = json.loads(ran.stdout)["rows"][0]
        except (ValueError, KeyError, IndexError):
            return "refused" if ran.returncode == 2 else "broken", (ran.stderr or "").strip()[:300], command
        verdict = row["verdict"] if row["verdict"] != "ok" else f"ok {row['class']}"
        reason = row.get("reason") or ""
        if row["verdict"] == "failed":
            differences = {name: value for name, value in row["residual"].items() if value}
            reason = f"{reason}\n    residual {json.dumps(differences)}\n    environment {json.dumps(row['environment'])}"
        else:
            for path in self.folder.glob(f"{self.seed}.*"):
                path.unlink()
        return verdict, reason, command


class Machine:
    """The settings of the machine, restored at the end."""

    def __init__(self):
        self.files = [THP / "enabled", *sorted(THP.glob("hugepages-*kB/enabled"))]
        self.before = {path: path.read_text().split("[")[1].split("]")[0] for path in self.files}
        self.pool = POOL.read_text().strip()

    def shuffle(self, draw):
        (THP / "enabled").write_text(draw.choice(["madvise", "madvise", "always"]))
        for path in self.files[1:]:
            size = int(path.parent.name.removeprefix("hugepages-").removesuffix("kB"))
            if size < 2048:
                path.write_text(draw.choice(["never"] * 6 + ["always", "madvise", "inherit"]))
        POOL.write_text(draw.choice(["0", "40", "200"]))
        chosen = [f"{path.parent.name}={path.read_text().split('[')[1].split(']')[0]}" for path in self.files]
        print(f"modes: {' '.join(word for word in chosen if not word.endswith('=never'))}, pool {POOL.read_text().strip()}")

    def restore(self):
        for path, mode in self.before.items():
            path.write_text(mode)
        POOL.write_text(self.pool)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--modes", action="store_true")
    parser.add_argument("--hksim", default=str(ROOT / "target/release/hksim"))
    parser.add_argument("--keep", help="a folder for the traces of pairs that failed")
    options = parser.parse_args()
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="hksim-designs-"))
    folder.mkdir(parents=True, exist_ok=True)
    machine = Machine() if options.modes else None
    counts, skips, seeds = collections.Counter(), collections.Counter(), range(options.seed, options.seed + options.pairs)
    print(f"seeds {seeds.start} to {seeds.stop - 1}, traces in {folder}", flush=True)
    try:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for start in range(0, len(seeds), 50):
                if machine:
                    machine.shuffle(random.Random(seeds[start]))
                pairs = [Pair(seed, folder, options.hksim) for seed in seeds[start : start + 50]]
                for pair, (verdict, reason, command) in zip(pairs, pool.map(Pair.run, pairs)):
                    counts[verdict] += 1
                    skips[reason] += verdict == "skipped"
                    if verdict not in ("ok exact", "skipped"):
                        print(f"seed {pair.seed}: {verdict}: {reason}\n    {command}", flush=True)
    finally:
        if machine:
            machine.restore()
        if not options.keep and not counts["failed"]:
            shutil.rmtree(folder, ignore_errors=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    for reason, count in skips.most_common():
        if count:
            print(f"skipped {count}: {reason}")
    raise SystemExit(1 if counts["failed"] or counts["broken"] else 0)


if __name__ == "__main__":
    main()
