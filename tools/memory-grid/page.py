"""The page of the program grid: docs/lab/programs-and-modes.md, from the rows that run.py wrote."""

import collections
import pathlib
import platform

from programs import cause

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/lab/programs-and-modes.md"
HEAD = pathlib.Path(__file__).with_name("programs-head.md")
SETTINGS = ["never", "madvise", "always", "madvise 64K=always"]
MIB = 1 << 20

EXACT_HEAD = """| Program | Setting | Traps | Huge pages at the exit | Peak RSS, MiB | Class | Residual | Passed |
|---|---|--:|--:|--:|---|--:|--:|"""
STATISTICAL_HEAD = """| Program | Setting | Traps, predicted | Five runs | Peak RSS, MiB, predicted | Five runs | Huge pages, predicted | Five runs | Class | Passed |
|---|---|--:|--:|--:|--:|--:|--:|---|---|"""


def write(results, programs, passed):
    """Writes the page. `programs` are all programs of the grid, and `passed` says whether a row is what its program promises."""
    PAGE.write_text(text(results, programs, passed), encoding="utf-8")


def text(results, programs, passed):
    rows = collections.defaultdict(list)
    for row in results["rows"]:
        rows[row["program"]].append(row)
    exact = [program for program in programs if program.exact and rows[program.name]]
    statistical = [program for program in programs if not program.exact and rows[program.name]]
    good = lambda program, row: passed(program, row["space"], row)
    lines = [HEAD.read_text(encoding="utf-8").rstrip().format(kernel=platform.release(), **totals(rows, exact + statistical, good)), ""]
    lines += ["## Programs that repeat themselves", "", EXACT_HEAD]
    lines += [line for program in exact for line in table(program, rows[program.name], good, exact_cells)]
    lines += ["", "## Programs that do not repeat themselves", "", STATISTICAL_HEAD]
    lines += [line for program in statistical for line in table(program, rows[program.name], good, statistical_cells)]
    lines += section("What predictions cannot cover", [gap_line(program, rows[program.name]) for program in exact if program.gap])
    lines += section("Failed rows", list(failures(exact + statistical, rows, good)))
    missing = [f"{program.name}: {results['skipped'][program.name]} is not installed" for program in programs if program.name in results["skipped"]]
    lines += section("Skipped programs", missing)
    return "\n".join(lines) + "\n"


def section(title, items):
    return ["", f"## {title}", "", *([f"- {item}" for item in items if item] or ["None."])]


def totals(rows, programs, good):
    """Figures for the head of the page."""
    exact_programs = [program for program in programs if program.exact and not program.gap]
    of = lambda program: rows[program.name]
    is_zero = lambda row: row.get("residual") == 0 and row.get("pages_differ") == [0, 0]
    fixed = lambda program: [row for row in of(program) if not program.by_address or row["space"].startswith("fixed")]
    return {
        "programs": len(programs),
        "rows": sum(len(of(program)) for program in programs),
        "passed": sum(good(program, row) for program in programs for row in of(program)),
        "exact": len(exact_programs),
        "zero": sum(all(is_zero(row) for row in fixed(program)) for program in exact_programs),
        "spaces": min(len({row["space"] for row in fixed(program)}) for program in exact_programs),
    }


def table(program, rows, good, cells):
    for setting in SETTINGS:
        own = [row for row in rows if row["setting"] == setting]
        if own:
            passed = f"{sum(good(program, row) for row in own)} of {len(own)}"
            yield f"| {' | '.join([program.name, setting, *cells(own), passed])} |"


def values(rows, side, key):
    return [figures[key] for row in rows for figures in row.get(side) or []]


def spread(numbers, show=str):
    """The lowest and the highest number."""
    if not numbers:
        return "–"
    low, high = show(min(numbers)), show(max(numbers))
    return low if low == high else f"{low} to {high}"


def pair(rows, key):
    """The figure, or prediction and measurement if they differ in a run."""
    predicted, measured = values(rows, "predicted", key), values(rows, "measured", key)
    return spread(predicted) if predicted == measured else f"{spread(predicted)} / {spread(measured)}"


def mebibytes(rows, side):
    return spread(values(rows, side, "rss_bytes_peak"), lambda number: f"{number / MIB:.2f}")


def classes(rows):
    found = collections.Counter(row.get("class") or row["verdict"] for row in rows)
    return ", ".join(name if len(found) == 1 else f"{name} {count}" for name, count in sorted(found.items()))


def exact_cells(rows):
    residual = sum(row.get("residual") or 0 for row in rows)
    pages = sum(sum(row.get("pages_differ") or []) for row in rows)
    words = str(residual) if not pages else f"{residual}, {pages} pages"
    return [pair(rows, "traps"), pair(rows, "huge_pages_end"), f"{mebibytes(rows, 'predicted')} / {mebibytes(rows, 'measured')}", classes(rows), words]


def statistical_cells(rows):
    both = lambda key: [spread(values(rows, side, key)) for side in ("predicted", "measured")]
    return [*both("traps"), mebibytes(rows, "predicted"), mebibytes(rows, "measured"), *both("huge_pages_end"), classes(rows)]


def gap_line(program, rows):
    failed = [row for row in rows if row["verdict"] != "ok"]
    if not failed:
        return f"`{program.name}`: all rows are equal."
    return f"`{program.name}`: {len(failed)} of {len(rows)} rows differ, and `validate` says why: \"{failed[0].get('reason', '')}\""


def failures(programs, rows, good):
    """One item for each cause: the programs, their failed rows, and what `validate` says about the first."""
    by_cause = collections.defaultdict(list)
    for program in programs:
        failed = [row for row in rows[program.name] if not good(program, row)]
        if failed:
            by_cause[cause(program.name)].append((program.name, failed))
    for words, found in by_cause.items():
        names = "; ".join(f"`{name}` ({failed_rows(failed)})" for name, failed in found)
        row = found[0][1][0]
        yield f"{names}: {words} `validate` ({row['verdict']}): \"{row.get('reason', '')}\""


def failed_rows(rows):
    settings = collections.Counter(row["setting"] for row in rows)
    return ", ".join(f"{setting}: {count} {'row' if count == 1 else 'rows'}" for setting, count in settings.items())
