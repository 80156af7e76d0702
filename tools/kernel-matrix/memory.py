#!/usr/bin/env python3
"""Programs predicted for other kernels and measured there: results in docs/lab/memory-kernels.json, the page in
docs/lab/memory-kernels.md.

memory.py add VERSION PACKAGE PREDICTED MEASURED   adds one kernel: the outputs of this machine and of the emulated one
memory.py write                                    writes the page
memory.py check                                    checks that the page matches the results
"""

import json
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs/lab"
RESULTS = DOCS / "memory-kernels.json"
PAGE = DOCS / "memory-kernels.md"
HEAD = Path(__file__).with_name("memory-head.md")
MODES = ["never", "madvise", "always"]
FIGURES = ["traps", "huge_pages_end", "rss_bytes_end"]
VALIDATED = ["class", "verdict", "reason", "residual", "first_difference"]


def load():
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def parts(path):
    """The JSON answers in an output by name, each with its exit status, and the status of `all`."""
    answers, end, name, lines = {}, None, None, []
    for line in Path(path).read_text(errors="replace").replace("\r", "").split("\n"):
        words = line.split()
        if words[:1] == ["begin"] and len(words) == 3:
            name, lines = tuple(words[1:]), []
        elif words[:1] == ["end"] and tuple(words[1:3]) == name:
            try:
                answers[name] = (json.loads("\n".join(lines)), int(words[3]))
            except ValueError as why:
                answers[name] = (None, f"{why}: {lines[:3]}")
            name = None
        elif words[:2] == ["end", "all"]:
            end = int(words[2])
        else:
            lines.append(line)
    return answers, end


def places(answer):
    """First address and size of each mapping with a touch, in order of creation."""
    return [[region["address"], region["bytes"], region["touches"]] for region in answer["regions"]]


def difference(ours, theirs):
    """The first mapping at another place, or with other first touches, as text."""
    show = lambda place: f"{place[1]} bytes at {place[0]:#x} with {place[2]} first touches" if place else "none"
    for index in range(max(len(ours), len(theirs))):
        pair = [places[index] if index < len(places) else None for places in (ours, theirs)]
        if pair[0] != pair[1]:
            return f"mapping {index}: {show(pair[0])} predicted, {show(pair[1])} measured"
    return None


def figures(answer):
    return {name: answer[name] for name in FIGURES}


def spread(answers):
    """The lowest and highest figures of several runs."""
    return {name: [min(answer[name] for answer in answers), max(answer[name] for answer in answers)] for name in FIGURES}


def rows_of(program, predicted, measured):
    there, _ = measured[program, "there"]
    own, ours = (measured[program, f"validate-{name}"][0]["rows"] for name in ("there", program))
    # Addresses do not depend on the mode.
    here, elsewhere = places(predicted[program, "never"][0]), places(there)
    equal = sum(one[:2] == other[:2] for one, other in zip(here, elsewhere))
    for mode, own_row, our_row in zip(MODES, own, ours, strict=True):
        yield {
            "program": program,
            "mode": mode,
            "predicted": figures(predicted[program, mode][0]),
            "predicted_there": figures(own_row["predicted"][0]) if "predicted" in own_row else None,
            "measured": spread(own_row["measured"] + our_row["measured"]) if "measured" in own_row else None,
            "touches": [predicted[program, mode][0]["recording"]["traps_recorded"], there["recording"]["traps_recorded"]],
            "mappings": [equal, max(len(here), len(elsewhere))],
            "first_mapping": difference(here, elsewhere),
            "validated": [{name: row.get(name) for name in VALIDATED} for row in (own_row, our_row)],
        }


def add(version, package, predicted, measured):
    (ours, _), (theirs, end) = parts(predicted), parts(measured)
    bad = [name for name, (answer, _) in (ours | theirs).items() if answer is None]
    if end != 0 or bad:
        sys.exit(f"{measured}: the run did not come to its end: {end}, unreadable: {bad}")
    programs = list(dict.fromkeys(program for program, _ in ours))
    rows = [row for program in programs for row in rows_of(program, ours, theirs)]
    release = theirs[programs[0], "there"][0]["recording"]["machine"]["kernel_release"]
    recorded = ours[programs[0], "never"][0]["recording"]["machine"]["kernel_release"]
    results = load()
    results[version] = {"release": release, "package": package, "recorded_on": recorded, "rows": rows}
    RESULTS.write_text(json.dumps(dict(sorted(results.items(), key=lambda item: order(item[0]))), indent=1) + "\n")
    print(f"{version}: {sum(map(is_exact, rows))} of {len(rows)} rows exact")
    for row in rows:
        if not is_exact(row) or row["first_mapping"]:
            print(json.dumps(row))


def is_exact(row):
    measured = row["measured"]
    return measured is not None and all(measured[name] == [row["predicted"][name]] * 2 for name in FIGURES)


def order(version):
    return [int(part) for part in version.split(".")]


def cells(version, row):
    def pair(name, scale=1):
        measured = row["measured"]
        low, high = [value // scale for value in measured[name]] if measured else ["skipped"] * 2
        return [row["predicted"][name] // scale, low if low == high else f"{low} to {high}"]

    there = row["predicted_there"]
    predicted, measured = pair("traps")
    return [row["program"], version, row["mode"], predicted, there["traps"] if there else "skipped", measured,
            *pair("huge_pages_end"), *pair("rss_bytes_end", 1024), "{} of {}".format(*row["mappings"])]


def page(results):
    lines = [HEAD.read_text()]
    lines += ["| Program | Kernel | THP | Traps, predicted | Predicted there | Measured | Huge pages, predicted | Measured "
              "| RSS KiB, predicted | Measured | Mappings placed |", "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    rows = [(version, row) for version, result in results.items() for row in result["rows"]]
    lines += ["| " + " | ".join(map(str, cells(version, row))) + " |" for version, row in rows]
    lines += ["", f"{sum(is_exact(row) for _, row in rows)} of {len(rows)} rows agree in all figures. Kernels: "]
    lines[-1] += "; ".join(f"{result['release']}" for result in results.values())
    lines[-1] += ". Recorded on " + ", ".join(sorted({result["recorded_on"] for result in results.values()})) + "."
    return "\n".join(lines) + "\n"


def main(words):
    match words:
        case ["add", version, package, predicted, measured]:
            add(version, package, predicted, measured)
        case ["write"]:
            PAGE.write_text(page(load()))
        case ["check"]:
            if PAGE.read_text() != page(load()):
                sys.exit(f"{PAGE}: not what {RESULTS.name} gives; run {__file__} write")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
