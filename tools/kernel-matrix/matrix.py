#!/usr/bin/env python3
"""The matrix of rules and kernel versions: results in docs/lab/kernel-matrix.json, the page in docs/lab/kernel-matrix.md.

matrix.py add VERSION PACKAGE OUTPUT   takes over what one machine said (`here` is a version, too)
matrix.py write                        writes the page
matrix.py check                        whether the page is what the results give
"""

import json
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs/lab"
RESULTS = DOCS / "kernel-matrix.json"
PAGE = DOCS / "kernel-matrix.md"
VERSIONS = ["5.15", "6.1", "6.8", "6.12", "6.14", "6.18", "here"]

HEAD = """# Rule by kernel version

`tools/kernel-matrix/run.sh` boots distribution kernels under QEMU's software emulation with a static `hksim`. There it
runs the directed scripts of every [kernel rule](../reference/kernel-rules.md) (`hksim rules --set-modes`), then random scripts over every set of modes
(`hksim rules --random N --all-modes`). After each operation prediction and kernel are compared. Counts are exact under emulation; times
mean nothing. This page is made from [kernel-matrix.json](kernel-matrix.json) by `matrix.py write`; do not edit it.

A cell: **all** scripts of the rule gave what the model of that version predicts (their number), **differ**: so many did not,
*unverified*: no script could be run, and the rule is as read in that version's source. Kernels before 6.7 have no page-table scans: huge
entries are compared by their sum there.
"""

NOTES = """R2, R11 and R17 have no script: defrag needs memory so fragmented that an allocation fails, khugepaged is not deterministic, and
fault-around concerns files. R5 (the address of a mapping without a hint) is read in every version's source; `cargo test` proves it on the
kernel it runs on. R3 is unverified where the sizes between 4 KiB and 2 MiB do not exist.
"""

STILL = """The run shrinks every difference; the result is input of `hksim rules --script`. Known causes:

- A lazily freed huge page that was written again is clean after `mprotect` on 6.18.15: a kernel error from 6.6 on, corrected in
  6.18.44, whose rules 6.18 has here ([versions](../reference/kernel-rules.md#versions)). 6.12 and 6.14 are predicted with it.
"""


def load():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def parts(text):
    """The JSON answers in an output, in order, and how each command ended."""
    answers, ends, at, lines = [], {}, 0, text.replace("\r", "")
    decoder = json.JSONDecoder()
    while at < len(lines):
        if lines.startswith("{", at):
            answer, at = decoder.raw_decode(lines, at)
            answers.append(answer)
            continue
        end = lines.find("\n", at)
        end = len(lines) if end < 0 else end
        words = lines[at:end].split()
        if len(words) == 3 and words[0] == "end":
            ends[words[1]] = int(words[2])
        at = end + 1
    return answers, ends


def add(version, package, output):
    answers, ends = parts(Path(output).read_text(errors="replace"))
    if ends.get("all") != 0 or len(answers) != 2 or any(ends.get(name) not in (0, 1) for name in ("rules", "random")):
        sys.exit(f"{output}: the run did not come to its end: {ends}, {len(answers)} answers")
    rules, random = answers
    by_rule = {}
    for row in rules["rules"]:
        counts = by_rule.setdefault(row["rule"], {"pass": 0, "fail": 0, "skipped": 0})
        counts[row["verdict"]] += 1
        if row["verdict"] == "fail":
            counts.setdefault("differences", []).append([row["about"], row["reason"]])
        elif row["verdict"] == "skipped":
            counts["reason"] = row["reason"]
    failures = [{"seed": one["seed"], "script": one["script"], "difference": one["difference"]} for one in random["failures"]]
    counts = {name: random[name] for name in ("seed", "scripts", "operations", "skipped", "skipped_for")}
    counts.update(unsteady=len(random["unsteady"]), failures=failures)
    results = load()
    results[version] = {"release": rules["kernel"], "package": package, "rules": by_rule, "random": counts}
    ordered = {name: results[name] for name in VERSIONS if name in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    total = {name: sum(rule[name] for rule in by_rule.values()) for name in ("pass", "fail", "skipped")}
    print(f"{version}: {total['pass']} scripts pass, {total['fail']} differ, {total['skipped']} skipped;",
          f"random: {counts['scripts']} scripts, {len(failures)} differ, {counts['skipped']} skipped")


def cell(counts):
    if counts is None or counts["pass"] + counts["fail"] == 0:
        return "unverified"
    if counts["fail"]:
        return f"**{counts['fail']} of {counts['pass'] + counts['fail']} differ**"
    return f"all {counts['pass']}"


def order(rule):
    digits = "".join(char for char in rule if char.isdigit())
    return (int(digits) if digits else 99, rule)


def page(results):
    names = [name for name in VERSIONS if name in results]
    lines = [HEAD]
    heads = ["proved here" if name == "here" else name for name in names]
    lines += ["| Rule | " + " | ".join(heads) + " |", "|---" * (len(names) + 1) + "|"]
    rules = sorted({rule for name in names for rule in results[name]["rules"]}, key=order)
    for rule in rules:
        cells = [cell(results[name]["rules"].get(rule)) for name in names]
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    random = [results[name]["random"] for name in names]
    lines.append("| random scripts without a difference | " + " | ".join(
        f"{one['scripts'] - len(one['failures'])} of {one['scripts']}" for one in random) + " |")
    lines.append("| their operations | " + " | ".join(str(one["operations"]) for one in random) + " |")
    lines += ["", NOTES, "## The kernels", ""]
    lines += [f"- {name}: {results[name]['release']} ({results[name]['package']})" for name in names]
    lines += ["", "## What differs still", ""]
    still = []
    for name in names:
        for rule in sorted(results[name]["rules"], key=order):
            for about, reason in results[name]["rules"][rule].get("differences", []):
                still.append(f"- {name}, {rule}, {about}: {reason}")
        for one in results[name]["random"]["failures"]:
            script = one["script"].strip().split("\n")
            # What a kernel does by itself after boot need not be said.
            plain = ("never", "mthp 2048 inherit", "pool 0", "zero_page on", "overcommit allowed")
            told = ("thp never", "overcommit never")
            steps = "; ".join(line for line in script if line in told or not line.endswith(plain))
            still.append(f"- {name}, `{steps}`: {one['difference']}")
    lines += [STILL, *still] if still else ["Nothing."]
    return "\n".join(lines) + "\n"


def main(words):
    match words:
        case ["add", version, package, output]:
            add(version, package, output)
        case ["write"]:
            PAGE.write_text(page(load()))
        case ["check"]:
            if PAGE.read_text() != page(load()):
                sys.exit(f"{PAGE}: not what {RESULTS.name} gives; run {__file__} write")
        case _:
            sys.exit(__doc__)


main(sys.argv[1:])
