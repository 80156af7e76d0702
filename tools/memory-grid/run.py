#!/usr/bin/env python3
"""Validates memory recordings of many programs: what the kernel model predicts against what the machine measures.

    tools/memory-grid/run.py [--only NAME,..] [--kind exact|statistical] [--spaces 5] [--stacks 4] [--seed 1] [--json FILE] [--write]
                             [--hksim target/release/hksim] [--keep FOLDER]

Each program is recorded in several address spaces: `--spaces` fresh recordings with random addresses, one with fixed addresses, and
`--stacks` with fixed addresses and another limit of the stack, which moves all mappings. Each recording is validated under four settings.
Programs of kind `exact` repeat themselves, so their residual must be 0; for the others the prediction must be within the spread of
five runs. Needs root: the machine's modes are set by `hksim validate --set-modes`, which restores them.

Inputs come from a generator with `--seed`. A program that is not installed is `skipped`. Exits with status 1 if a row failed.

`--json FILE` keeps the rows. Programs that are not run keep the rows that they have there, so failed ones can be run again alone.
`--write` writes docs/lab/programs-and-modes.md from all rows; `--only none --json FILE --write` only writes it.
"""

import argparse
import collections
import json
import pathlib
import resource
import shutil
import subprocess
import tempfile

import page
import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = [["--thp", "never,madvise,always", "--mthp", "2M=inherit"], ["--thp", "madvise", "--mthp", "64K=always"]]
RECORD_SECONDS_MAX = 120
VALIDATE_SECONDS_MAX = 600
MIB, PAGE = 1 << 20, 4096
# Programs that hash pointers repeat themselves only at equal addresses: they get as many fixed address spaces as others have in all.
STACKS_BY_ADDRESS = 4
RUNS_EXACT, RUNS_STATISTICAL = 2, 5


def address_spaces(count, stack_limits):
    """Name, whether addresses are fixed, and the limit of the stack in bytes (None: as it is)."""
    spaces = [(f"random-{number}", False, None) for number in range(count)]
    # mmap starts below the largest stack, but at least 128M below the top.
    stacks = [150 * MIB + 9 * PAGE, 201 * MIB + 101 * PAGE, 333 * MIB + 341 * PAGE, 512 * MIB]
    return [*spaces, ("fixed", True, None), *((f"fixed-stack-{bytes // MIB}M", True, bytes) for bytes in stacks[:stack_limits])]


def run(command, stack_bytes, seconds, folder, stdout=subprocess.PIPE):
    def limit():
        if stack_bytes is not None:
            resource.setrlimit(resource.RLIMIT_STACK, (stack_bytes, resource.RLIM_INFINITY))

    # Some programs do less where their output is dropped, as it is in `validate`.
    outputs = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": subprocess.PIPE}
    return subprocess.run(command, **outputs, text=True, errors="replace", timeout=seconds, check=False, cwd=folder, preexec_fn=limit)


def recording_of(folder, program):
    """The recording to validate: the command's own, or that of a child."""
    own = folder / "app.hkm"
    if not program.child:
        return own
    children = sorted((folder / "app.hkm.processes").glob(f"{program.child}.*.hkm"), key=lambda path: -path.stat().st_size)
    return children[0] if children else own


def rows_of(program, space, folder, work, hksim):
    """Records the program once, validates it under all settings, and returns the rows."""
    name, is_fixed, stack_bytes = space
    command = [word.format(work=work) for word in program.command]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    fixed = ["--no-aslr"] if is_fixed else []
    recorded = run([hksim, "record", "--memory", *fixed, "-o", folder / "app.hkm", "--", *command], stack_bytes, RECORD_SECONDS_MAX, work, subprocess.DEVNULL)
    if recorded.returncode != 0:
        return [{"setting": "record", "verdict": "broken", "reason": recorded.stderr.strip()[-300:]}]
    rows = []
    for setting in SETTINGS:
        runs = RUNS_STATISTICAL if is_statistical(program, name) else RUNS_EXACT
        words = [hksim, "validate", recording_of(folder, program), *setting, "--run-recorded", "--set-modes", "--runs", str(runs), "--format", "json"]
        ran = run(words, stack_bytes, VALIDATE_SECONDS_MAX, work)
        try:
            found = json.loads(ran.stdout)["rows"]
        except (ValueError, KeyError):
            found = [{"setting": [["", " ".join(setting)]], "verdict": "broken", "reason": ran.stderr.strip()[-300:]}]
        for row in found:
            row["setting"] = " ".join(value for _, value in row["setting"])
            rows.append(row)
    return rows


def line(program, space, row):
    figures = ""
    if row.get("predicted"):
        pairs = list(zip(row["predicted"], row["measured"]))
        figures = "; ".join(f"{name} " + ",".join(f"{p[key]}/{m[key]}" for p, m in pairs[:5]) for name, key in
                            [("traps", "traps"), ("huge", "huge_pages_end")])
    differ = row.get("pages_differ", ["", ""])
    residual = row.get("residual", "")
    text = f"{program.name:18} {space:16} {row['setting']:22} {row.get('class') or '':11} {row['verdict']:8} residual {residual} pages {differ[0]}/{differ[1]} {figures}"
    if row["verdict"] != "ok":
        text += f"\n    {row.get('reason', '')} {json.dumps(row.get('first_difference'))}"
    return text


def passed(program, space, row):
    """Whether a row is what the program's kind promises."""
    if program.gap:
        return row["verdict"] == "ok" or program.gap in (row.get("reason") or "")
    return row["verdict"] == "ok" and (row["class"] == "exact" or is_statistical(program, space))


def is_statistical(program, space):
    """Whether the runs may differ."""
    return not program.exact or program.by_address and space.startswith("random")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of programs, separated by commas; a name may end in *")
    parser.add_argument("--kind", choices=["exact", "statistical"])
    parser.add_argument("--spaces", type=int, default=5)
    parser.add_argument("--stacks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="a file that keeps the rows of all runs")
    parser.add_argument("--write", action="store_true", help="write docs/lab/programs-and-modes.md")
    parser.add_argument("--hksim", default=str(ROOT / "target/release/hksim"))
    parser.add_argument("--keep", help="a folder for inputs and recordings, kept")
    options = parser.parse_args()
    work = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="hksim-grid-", dir="/var/tmp"))
    work.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, folder {work}", flush=True)
    programs.prepare(work, options.seed)
    chosen, known = select(options), known_programs()
    results = load(options.json)
    for program in chosen:
        missing = program.missing(work)
        rows = [] if missing else run_program(program, options, work)
        results["rows"] = [row for row in results["rows"] if row["program"] != program.name] + rows
        results["skipped"].pop(program.name, None)
        if missing:
            print(f"{program.name:18} skipped: {missing} is not installed", flush=True)
            results["skipped"][program.name] = missing
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    if options.write:
        page.write(results, known["exact"] + known["statistical"], passed)
    names = {program.name for program in chosen}
    counts = summarise(chosen, [row for row in results["rows"] if row["program"] in names])
    if not options.keep:
        shutil.rmtree(work, ignore_errors=True)
    raise SystemExit(1 if counts["FAILED"] else 0)


def load(path):
    """The results of earlier runs."""
    if path and pathlib.Path(path).exists():
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    return {"rows": [], "skipped": {}}


def run_program(program, options, work):
    """Records and validates a program in all its address spaces, and returns the rows."""
    rows = []
    stacks = max(options.stacks, STACKS_BY_ADDRESS) if program.by_address else options.stacks
    spaces = address_spaces(options.spaces, stacks) if program.exact else [("random-0", False, None)]
    for space in spaces:
        for row in rows_of(program, space, work / "recordings", work, options.hksim):
            rows.append({"program": program.name, "space": space[0], **row})
            print(line(program, space[0], row), flush=True)
    return rows


def known_programs():
    return {"exact": programs.deterministic(), "statistical": programs.statistical()}


def select(options):
    known = known_programs()
    chosen = known[options.kind] if options.kind else known["exact"] + known["statistical"]
    if not options.only:
        return chosen
    names = options.only.split(",")
    fits = lambda program: any(program.name == name or name.endswith("*") and program.name.startswith(name[:-1]) for name in names)
    return [program for program in chosen if fits(program)]


def summarise(chosen, rows):
    """Prints what passed, and returns how many rows did."""
    counts = collections.Counter()
    print("\nprogram: rows passed of all, by setting; sum of residuals")
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    for program in chosen:
        own = [row for row in rows if row["program"] == program.name]
        if own:
            parts = []
            for setting in settings:
                cell = [row for row in own if row["setting"] == setting]
                if cell:
                    parts.append(f"{setting} {sum(passed(program, row['space'], row) for row in cell)}/{len(cell)}")
            for row in own:
                is_good = passed(program, row["space"], row)
                counts["passed" if is_good else "skipped" if row["verdict"] == "skipped" else "FAILED"] += 1
            residual = sum(row.get("residual") or 0 for row in own)
            print(f"{program.name:18} {'; '.join(parts)}; residual {residual}")
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    return counts


if __name__ == "__main__":
    main()
