#!/usr/bin/env python3
"""Programs under memory limits on other kernels: called by limits.sh.

limits.py generate FOLDER COUNT SEED      writes the sources of random programs, every third of which forks
limits.py table VERSION PACKAGE OUTPUT    prints what became of them as a table; status 1 if a prediction is wrong
"""

import random
import sys
from pathlib import Path

import memory

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "memory-limits"))
import run  # noqa: E402

PAGE = 4096
COLUMNS = ["least + 3", "least - 3", "3/4", "1/2", "twice"]


def generate(folder, count, seed):
    """The same programs as those of tools/memory-limits/run.py with this seed."""
    for number in range(count):
        text = run.program(random.Random(f"{seed} {number}"), number % 3 == 2)
        Path(folder, f"program-{number}.c").write_text(text)


def cell(row):
    """What became of a program under one limit, and whether that is as predicted."""
    limit = row.get("memory_limit")
    if not limit:
        return f"skipped: {row['reason']}"
    first = [run["outcome"] for run in limit["runs"] if run["limit_bytes"] == limit["runs"][0]["limit_bytes"]]
    words = " and ".join(sorted(set(first)))
    mark = {"failed": f" (predicted: {limit['predicted']['outcome']})", "skipped": " (skipped)"}.get(row["verdict"], "")
    unknown = "?" if limit["predicted"]["outcome"] == "unknown" else ""
    return words + unknown + ("*" if row["verdict"] == "ok" and row["class"] == "bounded" and not unknown else "") + mark


def table(version, package, output):
    answers, end = memory.parts(output)
    verdicts = {}
    print(f"\n### Linux {version} (`{package}`)\n")
    print(f"| Program | Least limit, pages | {' | '.join(COLUMNS)} |\n|---|---|{'---|' * len(COLUMNS)}")
    for (name, _), (answer, _) in sorted(answers.items(), key=lambda item: int(item[0][0].split("-")[1])):
        if answer is None:
            print(f"| {name} | no answer |")
            verdicts["none"] = verdicts.get("none", 0) + 1
            continue
        rows = answer["rows"]
        for row in rows:
            verdicts[row["verdict"]] = verdicts.get(row["verdict"], 0) + 1
        limits = [row["memory_limit"] for row in rows if row.get("memory_limit")]
        most = limits[0]["predicted"]["least_limit_bytes"] // PAGE if limits else 0
        low = limits[0].get("least_limit_bytes_min", most * PAGE) // PAGE if limits else 0
        least = f"{low} to {most}" if low != most else f"{most}"
        print(f"| {name.split('-')[1]} | {least} | {' | '.join(map(cell, rows))} |")
    print("\n" + ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    return 0 if end == 0 and verdicts and set(verdicts) <= {"ok", "skipped"} else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["generate"]:
        generate(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(table(*sys.argv[2:5]))
