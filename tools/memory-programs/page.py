"""The page of tools/memory-programs: docs/lab/memory-programs.md, from the rows that run.py wrote."""

import collections
import datetime
import os
import pathlib
import platform

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/lab/memory-programs.md"
HEAD = pathlib.Path(__file__).with_name("page-head.md")
TABLE = """| Program | Setting | RSS | Huge | Faults | Class | validate |
|---|---|--:|--:|--:|---|---|"""


def totals(rows):
    """How many rows each class has."""
    counts = collections.Counter(row["class"] for row in rows)
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "no rows"


def write(results, seed, causes):
    """Writes the page. `causes` are sentences about programs, by name."""
    rows = results["rows"]
    names = list(dict.fromkeys(row["program"] for row in rows))
    words = {
        "programs": len(names), "kernel": platform.release(), "processors": os.cpu_count(), "date": datetime.date.today().isoformat(), "seed": seed,
        "totals": totals(rows), "rows": len(rows), "runs": max((len(row["measured"]) for row in rows), default=0),
    }
    lines = [HEAD.read_text(encoding="utf-8").rstrip().format(**words), "", "## Rows", "", TABLE]
    lines += [line(row) for row in rows]
    lines += section("Rows that are not exact or statistical", [remark(row) for row in rows if row["class"] not in ("exact", "statistical")])
    lines += section("Rows that validate did not confirm", [unconfirmed(row) for row in rows if row["validate"].get("verdict") != "ok"])
    lines += section("Causes", [f"`{name}`: {causes[name]}" for name in names if causes.get(name)])
    lines += section("Skipped programs", [f"`{name}`: {why}" for name, why in sorted(results["skipped"].items())])
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def section(title, items):
    return ["", f"## {title}", "", *([f"- {item}" for item in items] or ["None."])]


def spread(values):
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low} to {high}"


def cell(row, key):
    predicted, measured = spread([figures[key] for figures in row["predicted"]]), spread([run[key] for run in row["measured"]])
    return predicted if predicted == measured else f"{predicted} / {measured}"


def line(row):
    check = row["validate"]
    words = " ".join(word for word in (check.get("verdict"), check.get("class")) if word)
    return f"| {' | '.join([row['program'], row['setting'], cell(row, 'rss'), cell(row, 'huge'), cell(row, 'faults'), row['class'], words])} |"


def remark(row):
    differ = "; ".join(f"{key} {spread(predicted)} predicted, {spread(runs)} measured" for key, predicted, runs in row["differ"])
    named = f"; hksim names: {', '.join(row['named'])}" if row["named"] else ""
    counters = "".join(f"; {name} +{count}" for name, count in row["counters"].items())
    return f"`{row['program']}`, {row['setting']}: {row['class']}: {differ}{named}{counters}"


def unconfirmed(row):
    check = row["validate"]
    return f"`{row['program']}`, {row['setting']}: {check.get('verdict')}: {check.get('reason')}"
