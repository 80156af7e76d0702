#!/usr/bin/env python3
"""Programs with threads, with random addresses, and small servers under memory limits, predicted and met: whether they are
killed, and where.

    tools/memory-limits/services.py                           with target/release/hksim
    tools/memory-limits/services.py --hksim PATH --only redis
    tools/memory-limits/services.py --programs 10 --seed 2     more or other random programs of run.py

Each program is recorded once, and then run by `hksim validate --memory-limit` under five limits, twice each: the predicted
least limit plus and minus 3 pages, three quarters and half of it, and twice as much. Prints a table for
docs/lab/memory-limits.md. `bounded`: as predicted only with room for what is not known exactly; then the place of the kill,
where one was predicted and can be compared. Servers that are not installed
are left out. Needs root, a C compiler, curl and control groups. Status 1 if a prediction is wrong.
"""

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import run

PAGE = run.PAGE
SECONDS_MAX = 120
COLUMNS = ["least + 3", "least - 3", "3/4", "1/2", "twice"]
REDIS_PORT, HTTP_PORT = 16399, 18765

THREADS = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
static void *work(void *number) {
    for (int round = 0; round < 50; round++) {
        char *block = malloc(1 << 20);
        if (!block) abort();
        memset(block, 1, 1 << 20);
        if (round % 2) free(block);
    }
    unsigned long bytes = (unsigned long)number << 20;
    char *last = malloc(bytes);
    if (!last) abort();
    memset(last, 1, bytes);
    return 0;
}
int main(void) {
    pthread_t threads[4];
    for (unsigned long i = 0; i < 4; i++) pthread_create(threads + i, 0, work, (void *)(i + 1));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    return 0;
}
"""


class Case:
    """A program, how it is used, and whether its addresses are fixed."""

    def __init__(self, name, command, is_fixed=True, ready=None, load=None):
        self.name, self.command, self.is_fixed, self.ready, self.load = name, command, is_fixed, ready, load

    def record(self, hksim, path):
        line = [hksim, "record", "--memory", "-q", *(["--no-aslr"] if self.is_fixed else []), "-o", path, "--", *self.command]
        recorder = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if self.load:
            until = time.time() + SECONDS_MAX
            while subprocess.run(self.ready, shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
                if time.time() > until:
                    sys.exit(f"{self.name} is not ready")
                time.sleep(0.1)
            subprocess.run(self.load, shell=True, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            recorder.terminate()
        recorder.wait(SECONDS_MAX)

    def rows(self, hksim, path):
        sim = [hksim, "sim", "-q", path, "--kernel", "host", "--memory-limit", "1T", "--format", "json"]
        least = json.loads(subprocess.run(sim, check=True, capture_output=True).stdout)["memory_limit"]["least_limit_bytes"]
        pages = least // PAGE
        limits = [pages + 3, pages - 3, pages * 3 // 4, pages // 2, pages * 2]
        line = [hksim, "validate", "-q", path, "--run-recorded", "--runs", "2", "--format", "json"]
        line += ["--memory-limit", ",".join(str(limit * PAGE) for limit in limits)]
        line += ["--ready", self.ready, "--load", self.load] if self.load else []
        ended = subprocess.run(line, capture_output=True, check=False)
        return pages, json.loads(ended.stdout)["rows"]


def compiled(folder, name, text, *flags):
    source = folder / f"{name}.c"
    source.write_text(text)
    subprocess.run(["cc", "-O1", "-fno-builtin", *flags, "-o", folder / name, source], check=True)
    return folder / name


def cases(folder, count, seed):
    threads = compiled(folder, "threads", THREADS, "-pthread")
    yield Case("4 threads", [threads])
    yield Case("4 threads, random addresses", [threads], is_fixed=False)
    for number in [number for number in range(2 * count) if number % 3 != 2][:count]:
        text = run.program(random.Random(f"{seed} {number}"), False)
        program = compiled(folder, f"program-{number}", text)
        yield Case(f"program {number}", [program])
        yield Case(f"program {number}, random addresses", [program], is_fixed=False)
    if shutil.which("redis-server"):
        server = ["redis-server", "--port", str(REDIS_PORT), "--save", "", "--appendonly", "no"]
        ready = f"redis-cli -p {REDIS_PORT} ping | grep -q PONG"
        yield Case("redis", server, True, ready, f"redis-benchmark -p {REDIS_PORT} -t set,lpush -n 5000 -d 200 -r 2000 -q")
    site = folder / "site"
    site.mkdir()
    (site / "file").write_bytes(random.Random(1).randbytes(300_000))
    get = f"curl -s -o {folder}/got http://127.0.0.1:{HTTP_PORT}/file"
    load = f"for i in $(seq 60); do {get} || exit 1; done"
    server = [sys.executable, "-m", "http.server", "-d", site, str(HTTP_PORT)]
    yield Case("python http.server", server, True, get, load)
    yield Case("python http.server, random addresses", server, False, get, load)


def cell(row):
    """What became of a program under one limit, whether that is as predicted, and where it was killed."""
    limit = row.get("memory_limit")
    if not limit:
        return f"skipped: {row['reason']}"
    first = [each["outcome"] for each in limit["runs"] if each["limit_bytes"] == limit["runs"][0]["limit_bytes"]]
    words = " and ".join(sorted(set(first)))
    place = limit.get("killed", {}).get("agreement")
    mark = {"failed": f" (predicted: {limit['predicted']['outcome']})", "skipped": " (skipped)"}.get(row["verdict"], "")
    unknown = "?" if limit["predicted"]["outcome"] == "unknown" else ""
    bounded = ", bounded" if row["verdict"] == "ok" and row["class"] == "bounded" and not unknown else ""
    return words + unknown + bounded + mark + (f", place: {place}" if place else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hksim", type=pathlib.Path, default=run.ROOT / "target/release/hksim")
    parser.add_argument("--programs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    args = parser.parse_args()
    verdicts = {}
    with tempfile.TemporaryDirectory(prefix="hksim-memory-limits-") as folder:
        folder = pathlib.Path(folder)
        print(f"| Program | Least limit, pages | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
        for number, case in enumerate(each for each in cases(folder, args.programs, args.seed) if args.only in each.name):
            recording = folder / f"{number}.hkm"
            case.record(args.hksim, recording)
            pages, rows = case.rows(args.hksim, recording)
            for row in rows:
                verdicts[row["verdict"]] = verdicts.get(row["verdict"], 0) + 1
            print(f"| {case.name} | {pages} | {' | '.join(map(cell, rows))} |", flush=True)
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    return 1 if "failed" in verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
