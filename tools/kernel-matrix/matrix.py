#!/usr/bin/env python3
"""The matrix of rules and kernel versions: results in docs/lab/kernel-matrix.json, the page in docs/lab/kernel-matrix.md.

matrix.py add VERSION PACKAGE OUTPUT   adds the output of one machine (`here` is also a version)
matrix.py write                        writes the page
matrix.py check                        checks that the page matches the results
"""

import json
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs/lab"
RESULTS = DOCS / "kernel-matrix.json"
PAGE = DOCS / "kernel-matrix.md"
VERSIONS = ["5.15", "6.1", "6.8", "6.12", "6.14", "6.18", "7.2", "here"]

HEAD = """# Rule by kernel version

This page shows on which kernels the [kernel rules](../reference/kernel-rules.md) were tested.
`tools/kernel-matrix/matrix.py write` generates it from [kernel-matrix.json](kernel-matrix.json), which has each rule's results and
each kernel's package.

`tools/kernel-matrix/run.sh` boots distribution kernels in QEMU (software emulation). In each kernel it runs the directed scripts of
every rule (`hksim rules --set-modes`), then random scripts over every set of modes (`hksim rules --random N --all-modes`).
"""

NOTES = """Other rules were checked only by reading the source of each version. R2 and R17 have no script: compaction needs fragmented
memory, and fault-around concerns files. Those of R11, which wait for full scans of khugepaged, ran from Linux 7.2 on. R3 needs sizes that 5.15 and 6.1 do not have. `cargo test`
checks R5 on the running kernel. Before Linux 6.7 only the number of huge entries is compared, since there are no page-table scans.

R1 includes R1b, and R9, R13, R16, R18, R19, R24 and R27 stand for all rules of that number (R13 for R13, R13a, R13b, ...): they shared
one name when these kernels were tested.

Without emulation, 58 812 random scripts on 6.18.44 found three errors in the model, now fixed: one in R26 after a fork, two in R29 to R29c.
"""

STILL = """hksim shrinks each script that differs. One cause is known: 6.18.15 loses a dirty bit, which 6.18.44 keeps
([versions](../reference/kernel-rules.md#versions)).
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
            counts.setdefault("differences", []).append([row["title"], row["reason"]])
        elif row["verdict"] == "skipped":
            counts["reason"] = row["reason"]
    failures = [{"seed": one["seed"], "script": one["script"], "difference": one["difference"]} for one in random["failures"]]
    counts = {name: random[name] for name in ("seed", "scripts", "operations", "skipped", "skipped_by_reason")}
    counts.update(not_reproduced=len(random["not_reproduced"]), failures=failures)
    results = load()
    results[version] = {"release": rules["kernel_release"], "package": package, "rules": by_rule, "random": counts}
    ordered = {name: results[name] for name in VERSIONS if name in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    total = {name: sum(rule[name] for rule in by_rule.values()) for name in ("pass", "fail", "skipped")}
    print(f"{version}: {total['pass']} scripts pass, {total['fail']} differ, {total['skipped']} skipped;",
          f"random: {counts['scripts']} scripts, {len(failures)} differ, {counts['skipped']} skipped")


def order(rule):
    digits = "".join(char for char in rule if char.isdigit())
    return (int(digits) if digits else 99, rule)


def page(results):
    names = [name for name in VERSIONS if name in results]
    lines = [HEAD, "| Version | Kernel | Directed scripts | Differ | Random scripts | Operations | Differ |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|")
    for name in names:
        rules, random = results[name]["rules"].values(), results[name]["random"]
        passed, failed = (sum(rule[verdict] for rule in rules) for verdict in ("pass", "fail"))
        cells = ["6.18, not emulated" if name == "here" else name, results[name]["release"]]
        cells += [passed + failed, failed, random["scripts"], random["operations"], len(random["failures"])]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    rules = [(rule, verdicts) for name in names for rule, verdicts in results[name]["rules"].items()]
    tested = {rule for rule, verdicts in rules if verdicts["pass"] + verdicts["fail"]}
    lines += ["", "Rules with directed scripts: " + ", ".join(sorted(tested, key=order)) + ".", "", NOTES]
    lines += ["## Remaining differences", ""]
    still = []
    for name in names:
        for rule in sorted(results[name]["rules"], key=order):
            for about, reason in results[name]["rules"][rule].get("differences", []):
                still.append(f"- {name}, {rule}, {about}: {reason}")
        for one in results[name]["random"]["failures"]:
            script = one["script"].strip().split("\n")
            # Modes as after boot are left out.
            plain = ("never", "mthp 2048 inherit", "pool 0", "zero_page on", "overcommit allowed")
            kept = ("thp never", "overcommit never")
            steps = "; ".join(line for line in script if line in kept or not line.endswith(plain))
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
