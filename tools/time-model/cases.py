"""Predictions of designs on recordings, and measured times of their replays on the preloaded allocator."""

import csv
import json
import os
import subprocess
import sys
import tomllib

# Designs that say nothing of purges have these words: a replay does not wait, so memory that a design purges after a delay
# stays, but predictions are for the recording's own times.
TIMELESS = ["purge=none"]
# What of a simulation its terms are computed from.
COUNTED = ["calls", "policy", "installs", "page_operations", "os_calls", "pmd_splits", "paths", "lines", "system_time", "time"]


def hksim(program, *words):
    # 1 is the status of a comparison in which an allocator failed; its rows say so.
    ran = subprocess.run([program, *words, "--format", "json"], capture_output=True, check=False, text=True)
    if ran.returncode not in (0, 1):
        sys.exit(f"{words}: {ran.stderr}")
    return json.loads(ran.stdout)


def name_of(trace):
    return os.path.splitext(os.path.basename(trace))[0]


def calibrate(arguments, folder):
    """The profile of this machine, measured unless a file is given."""
    if not arguments.profile:
        arguments.profile = os.path.join(folder, "profile.toml")
        hksim(arguments.hksim, "calibrate", "--thorough", "-o", arguments.profile)
    with open(arguments.profile, "rb") as file:
        return tomllib.load(file)


def on_one_thread(arguments, trace, folder):
    """The file of the same trace with all events on one thread. A replay on a preloaded allocator performs the events of all
    threads in one, with one heap; the simulation of a trace with threads has a heap for each."""
    if hksim(arguments.hksim, "info", trace)["threads"] == 1:
        return trace
    table, merged, one = (os.path.join(folder, f"{name_of(trace)}{end}") for end in (".csv", "-merged.csv", ".hkt"))
    subprocess.run([arguments.hksim, "export", "-q", trace, "--to", "csv", "-o", table], check=True)
    with open(table, newline="", encoding="utf-8") as source, open(merged, "w", newline="", encoding="utf-8") as target:
        rows = csv.DictReader(source)
        writer = csv.DictWriter(target, rows.fieldnames, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            if row["op"] in ("thread-start", "thread-exit") and row["thread"] != "0":
                continue
            writer.writerow(row | {"thread": row["thread"] and "0"})
    subprocess.run([arguments.hksim, "import", "-q", merged, "-o", one], check=True)
    os.remove(table)
    os.remove(merged)
    return one


def predict(arguments, trace, touch, designs):
    """A row for each design."""
    rows = []
    for design in designs:
        words = design if any(word.startswith("purge=") for word in design) else design + TIMELESS
        flags = [word for setting in words for word in ("--" + setting).split("=")]
        sim = hksim(arguments.hksim, "sim", trace, "--touch", touch, "--profile", arguments.profile, *flags)
        rows.append({"design": " ".join(design) or "default", "words": words, "time_skipped": sim.get("time_skipped"),
                     "sim": {field: sim.get(field) for field in COUNTED}, "faults": sim["faults"]})
    return rows


def measured(arguments, trace, touch, rows):
    """The recording with what the replays of these rows took, and the replay alone, without an allocator."""
    names = ",".join("native:" + "+".join(row["words"]) for row in rows)
    timed = hksim(arguments.hksim, "compare", trace, "--touch", touch, "--allocators", names,
                  "--runs", str(arguments.rounds), "--seed", str(arguments.seed))
    for row, found in zip(rows, timed["rows"]):
        if found["outcome"] != "measured":
            sys.exit(f"{trace} {row['design']}: {found['reason']}")
        row["measured"] = {part: found[part] for part in ("cpu_ns_per_call", "system_ns_per_call")}
        if found["faults"]["median"] != row["faults"]:
            print(f"{trace} {row['design']}: {row['faults']} faults predicted, {found['faults']['median']} measured",
                  file=sys.stderr)
    return {"own_ns": timed["timing"]["harness"]["cpu_ns_per_call"], "rows": rows}
