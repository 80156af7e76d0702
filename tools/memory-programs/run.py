#!/usr/bin/env python3
"""Compares predictions for programs with real runs that hksim does not measure.

    tools/memory-programs/run.py [--only NAME,..] [--seed N] [--runs 3] [--json FILE] [--write] [--keep FOLDER]
                                 [--hksim target/release/hksim] [--lock FILE]

For each program: `hksim record --memory --no-aslr` once; a prediction by `hksim sweep` for four settings; `hksim validate --run-recorded
--set-modes` under these settings; and the program itself under them, run by `exitmem.c`, which reads the kernel's smaps at the exit and its
counts of faults. Compared are resident and huge anonymous memory at the exit, of the process and of all processes together, huge memory of the main stack, and
minor faults (as the difference to setting never, since faults in files are the same under all settings).

Classes of a row: `exact`: all runs are equal, and so is the prediction. `statistical`: the runs differ, or so do recordings, and the prediction is inside
their spread. `named`: the prediction differs, and hksim says in the result what it cannot cover. `disturbed`: khugepaged or the TLB of a virtual machine
changed the run, or the kernel found no contiguous memory, as its counters or `validate` say. `WRONG`: none of these. Exits with status 1 if a row is WRONG.

Needs root: it sets the machine's modes and restores them. `--lock` holds a lock file (flock) while a program is played. `--json FILE` keeps the
rows, `--write` writes docs/lab/memory-programs.md from them. A program that is not installed is skipped.
"""

import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import page
import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
THP = pathlib.Path("/sys/kernel/mm/transparent_hugepage")
POOL = pathlib.Path("/proc/sys/vm/nr_hugepages")
# hksim locks this folder while it changes modes.
MODES_LOCK = "/sys/kernel/mm"
# Name, mode of transparent_hugepage/enabled, mode of 64 KiB.
SETTINGS = [("never", "never", "never"), ("madvise", "madvise", "never"), ("always", "always", "never"), ("madvise 64K", "madvise", "always")]
SWEEPS = [["--thp", "never,madvise,always", "--mthp", "2M=inherit"], ["--thp", "madvise", "--mthp", "64K=always"]]
FIGURES = ["rss", "huge", "rss_all", "huge_all", "stack_huge", "faults"]
SECONDS_MAX = 150
VALIDATE_SECONDS_MAX = 900
RECORDINGS_MORE = 3
# Runs during which another program changed the modes are repeated.
REPEATS_MAX = 20
KIB = 1024


def selected(path):
    """The selected word of a file such as `always [madvise] never`."""
    text = path.read_text(encoding="ascii")
    return text.split("[")[1].split("]")[0]


@contextlib.contextmanager
def modes(thp, size_64k, pool=None):
    """Sets the modes of huge pages, and restores them."""
    files = {THP / "enabled": thp, THP / "hugepages-64kB/enabled": size_64k}
    before = {path: selected(path) for path in files}
    pool_before = POOL.read_text(encoding="ascii")
    try:
        for path, word in files.items():
            path.write_text(word, encoding="ascii")
        if pool:
            POOL.write_text(str(pool), encoding="ascii")
        yield
    finally:
        for path, word in before.items():
            path.write_text(word, encoding="ascii")
        if pool:
            POOL.write_text(pool_before, encoding="ascii")


@contextlib.contextmanager
def locked(path):
    """Holds a lock file."""
    if not path:
        yield
        return
    file = os.open(path, os.O_RDONLY | (0 if os.path.isdir(path) else os.O_CREAT))
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def play(command, program, work):
    """Runs a command, which runs the program; for a server, uses and stops it. Returns its status and standard error."""
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        running = subprocess.Popen(command, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            if program.load:
                use_server(program, running, work)
            running.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Also when this program is interrupted.
            if running.poll() is None:
                running.terminate()
                running.wait(20)
        errors.seek(0)
        return running.returncode, errors.read()


def use_server(program, running, work):
    quiet = {"shell": True, "cwd": work, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
    for _ in range(300):
        if subprocess.run(program.ready, **quiet).returncode == 0:
            break
        time.sleep(0.1)
    subprocess.run(program.load, **quiet, timeout=SECONDS_MAX)
    running.send_signal(getattr(signal, f"SIG{program.stop}"))


def record(program, work, hksim):
    """Records the program. Returns the files of all processes that exited, the file to compare first, and whether none outlived the program."""
    folder = work / "recordings" / program.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [hksim, "record", "--memory", "--no-aslr", "--format", "json", "-o", folder / "app.hkm", "--", *program.command]
    status, errors = play(command, program, work)
    start = errors.find("{\n")
    if status != 0 or start < 0:
        raise ValueError(errors.strip()[-300:])
    report, _ = json.JSONDecoder().raw_decode(errors[start:])
    files = [file for file in report["files"] if file["end"] == "exit"]
    if program.child:
        first = max((file for file in files if file["program"].startswith(program.child)), key=lambda file: file["events"], default=files[0])
        files = [first, *(file for file in files if file is not first)]
    return files, all(file["end"] != "running" for file in report["files"])


def predict(files, work, hksim):
    """Figures by setting, and what hksim says it does not cover."""
    found, named = {}, set()
    for words in SWEEPS:
        ran = subprocess.run([hksim, "sweep", *(file["path"] for file in files), *words, "--format", "json"], cwd=work, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise ValueError(ran.stderr.strip()[-300:])
        for row in json.loads(ran.stdout)["rows"]:
            kernel = row["kernel"]["thp"]
            name = kernel["global"] + (" 64K" if kernel["sizes"]["64K"] == "always" else "")
            is_first = row["recording"]["file"] == str(files[0]["path"]) and row["recording"]["pid"] == files[0]["pid"]
            add(found.setdefault(name, dict.fromkeys(FIGURES, 0)), row, is_first)
            named |= set(gaps(row["recording"]))
    never = found["never"]["faults"]
    for figures in found.values():
        figures["faults"] -= never
    return found, sorted(named)


def add(figures, row, is_first):
    stack = row.get("stack") or {}
    figures["rss_all"] += row["rss_bytes_end"] // KIB
    figures["huge_all"] += row["huge_pages_end"] * 2048
    if is_first:
        figures["rss"] = row["rss_bytes_end"] // KIB
        figures["huge"] = row["huge_pages_end"] * 2048
        figures["stack_huge"] = stack.get("huge_pages_peak", 0) * 2048
        figures["faults"] = row["faults"] + stack.get("traps", 0)


def gaps(recording):
    """What the result names as not covered."""
    for name, count in (recording.get("unrecorded_calls") or {}).items():
        yield f"{count} {name}"
    for name, count in (recording.get("advice_unmodelled") or {}).items():
        yield f"{count} madvise({name})"
    for key in ("lost_events", "children_missing", "thp_enabled"):
        if recording.get(key):
            yield f"{key} {recording[key]}"


def counters():
    names = ("thp_collapse_alloc", "thp_fault_fallback", "pswpout")
    lines = dict(line.split() for line in pathlib.Path("/proc/vmstat").read_text(encoding="ascii").splitlines())
    return {name: int(lines.get(name, 0)) for name in names}


def measure(program, work, runs):
    """The figures of real runs by setting, and which of the kernel's counters changed."""
    found, disturbed = {}, {}
    with locked(MODES_LOCK):
        for name, thp, size in SETTINGS:
            before = counters()
            found[name] = [run_undisturbed(program, work, thp, size) for _ in range(runs)]
            disturbed[name] = {key: value - before[key] for key, value in counters().items() if value != before[key]}
    baseline = sorted(run["faults"] for run in found["never"])[runs // 2]
    for name in found:
        for run in found[name]:
            run["faults"] -= baseline
    return found, disturbed


def run_undisturbed(program, work, thp, size):
    """A run during which the modes stayed as they were set."""
    for _ in range(REPEATS_MAX):
        with modes(thp, size, program.pool):
            figures = run_once(program, work)
            if (selected(THP / "enabled"), selected(THP / "hugepages-64kB/enabled")) == (thp, size):
                return figures
    raise ValueError("another program changes the modes of huge pages")


def run_once(program, work):
    output = work / "exitmem.json"
    status, errors = play([work / "exitmem", output, *program.command], program, work)
    if status:
        raise ValueError(f"exitmem: {errors.strip()[-300:]}")
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    processes = [line for line in lines if "pid" in line]
    first = processes[0]
    if program.child:
        first = max((p for p in processes if p["name"].startswith(program.child)), key=lambda p: p["minflt"], default=first)
    total = lambda key: sum(process[key] for process in processes)
    return {"rss": first["rss"] + first["hugetlb"], "huge": first["huge"], "rss_all": total("rss") + total("hugetlb"), "huge_all": total("huge"),
            "stack_huge": first["stack_huge"], "faults": first["minflt"], "status": lines[-1]["status"]}


def validate(program, files, work, hksim, runs):
    """`hksim validate`'s rows by setting."""
    found = {}
    server = ["--ready", program.ready, "--load", program.load, "--stop", program.stop] if program.load else []
    for words in SWEEPS:
        command = [hksim, "validate", files[0]["path"], *words, "--run-recorded", "--set-modes", "--runs", str(runs), "--format", "json", *server]
        with modes(selected(THP / "enabled"), selected(THP / "hugepages-64kB/enabled"), program.pool):
            ran = subprocess.run(command, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, errors="replace",
                                 timeout=VALIDATE_SECONDS_MAX)
        try:
            rows = json.loads(ran.stdout)["rows"]
        except (ValueError, KeyError):
            rows = [{"setting": [], "verdict": "broken", "reason": ran.stderr.strip()[-400:]}]
        for row in rows:
            words_of = dict(row["setting"])
            name = words_of.get("thp", "?") + (" 64K" if "64K=always" in words_of.get("mthp", "") else "")
            found[name] = {key: row.get(key) for key in ("verdict", "class", "reason", "residual", "pages_differ")}
    return found


def is_inside(values, runs, slack):
    """Whether one of the predictions is within the spread of the runs, or outside by less than its width and `slack`."""
    low, high = min(runs), max(runs)
    width = high - low + slack
    return any(low - width <= value <= high + width for value in values)


def differing(predicted, runs, faults_slack):
    """The figures whose prediction differs: name, predictions, runs. Faults are differences to runs that have a spread of their own."""
    return [(key, sorted({p[key] for p in predicted}), sorted({run[key] for run in runs})) for key in FIGURES
            if not is_inside([p[key] for p in predicted], [run[key] for run in runs], faults_slack if key == "faults" else 0)]


def faults_spread(runs):
    faults = [run["faults"] for run in runs]
    return max(faults) - min(faults)


def classify(predicted, runs, faults_slack, named, changed, checked):
    """The class of a row, and the figures that differ. The first prediction is that of the recording, the others are of further ones."""
    is_equal = all(run[key] == predicted[0][key] for run in runs for key in FIGURES)
    if is_equal:
        return "exact", []
    differ = differing(predicted, runs, faults_slack)
    if not differ:
        return "statistical", []
    if named:
        return "named", differ
    reason = checked.get("reason") or ""
    if "without an exception" in reason:
        return "named", differ
    if changed.get("thp_collapse_alloc") or changed.get("thp_fault_fallback"):
        return "disturbed", differ
    if all(key == "faults" for key, _, _ in differ) and "additional faults in huge pages" in reason:
        return "disturbed", differ
    return "WRONG", differ


def record_with_pool(program, work, options):
    """Records the program. A pool, if it needs one, is the same as in its runs."""
    if not program.pool:
        return record(program, work, options.hksim)
    with locked(options.lock), locked(MODES_LOCK), modes(selected(THP / "enabled"), selected(THP / "hugepages-64kB/enabled"), program.pool):
        return record(program, work, options.hksim)


def rows_of(program, work, options, recorded, played):
    """The rows of a program, from its prediction and what was played."""
    _, is_whole, predicted, named = recorded
    checked, measured, changed = played
    if not is_whole:
        # The recording ends with the program; its children run on, here until their ends.
        for figures in [*predicted.values(), *(run for runs in measured.values() for run in runs)]:
            figures.update(rss_all=figures["rss"], huge_all=figures["huge"])
    samples = {name: [figures] for name, figures in predicted.items()}
    slack = faults_spread(measured["never"])
    if any(differing(samples[name], measured[name], slack) for name, _, _ in SETTINGS) and not named:
        for _ in range(RECORDINGS_MORE):
            more, _ = predict(record_with_pool(program, work, options)[0], work, options.hksim)
            for name, figures in more.items():
                if not is_whole:
                    figures.update(rss_all=figures["rss"], huge_all=figures["huge"])
                samples[name].append(figures)
    rows = []
    for name, _, _ in SETTINGS:
        check = checked.get(name) or next(iter(checked.values()), {})
        kind, differ = classify(samples[name], measured[name], slack, named, changed[name], check)
        rows.append({"program": program.name, "setting": name, "class": kind, "differ": differ, "predicted": samples[name], "measured": measured[name],
                     "named": named, "counters": changed[name], "validate": check})
    return rows


def show(row):
    check = row["validate"]
    first, runs = row["predicted"][0], row["measured"]
    spread = lambda key: f"{min(run[key] for run in runs)}..{max(run[key] for run in runs)}"
    text = f"{row['program']:18} {row['setting']:12} {row['class']:11} " + " ".join(f"{key} {first[key]}/{spread(key)}" for key in ("rss", "huge", "faults"))
    text += f" | validate {check.get('verdict')} {check.get('class')}"
    if row["differ"]:
        text += f"\n    differ {row['differ']} named {row['named']} counters {row['counters']}"
    if check.get("reason"):
        text += f"\n    validate: {check['reason'][:300]}"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="names of programs, separated by commas; a name may end in *")
    parser.add_argument("--seed", type=int, default=20261125)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", help="a file that keeps the rows of all runs")
    parser.add_argument("--write", action="store_true", help="write docs/lab/memory-programs.md")
    parser.add_argument("--hksim", default=str(ROOT / "target/release/hksim"))
    parser.add_argument("--keep", help="a folder for inputs and recordings, kept")
    parser.add_argument("--lock", help="a lock file to hold while programs are played")
    parser.add_argument("--batch", type=int, default=6, help="programs that are played while the lock is held")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(130))  # modes are restored
    work = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="hksim-programs-", dir="/var/tmp"))
    work.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, folder {work}", flush=True)
    programs.prepare(work, options.seed)
    path = pathlib.Path(options.json) if options.json else None
    results = json.loads(path.read_text(encoding="utf-8")) if path and path.exists() else {"rows": [], "skipped": {}}
    names = options.only.split(",") if options.only else ["*"]
    fits = lambda name: any(name == word or word.endswith("*") and name.startswith(word[:-1]) for word in names)
    chosen = [program for program in programs.all_programs(work) if fits(program.name)]
    for at in range(0, len(chosen), options.batch):
        play_batch(chosen[at:at + options.batch], work, options, results)
        if path:
            path.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if options.write:
        causes = {program.name: program.cause for program in programs.all_programs(work)}
        page.write(results, options.seed, causes)
    if not options.keep:
        shutil.rmtree(work, ignore_errors=True)
    print(page.totals(results["rows"]))
    raise SystemExit(1 if any(row["class"] == "WRONG" for row in results["rows"]) else 0)


def play_batch(batch, work, options, results):
    """Records and predicts some programs, then plays them while the lock is held, and adds their rows."""
    recorded = {}
    for program in batch:
        results["rows"] = [row for row in results["rows"] if row["program"] != program.name]
        results["skipped"].pop(program.name, None)
        missing = program.missing(work)
        with skips(program, results):
            if missing:
                raise ValueError(f"{missing} is not installed")
            files, is_whole = record_with_pool(program, work, options)
            recorded[program.name] = (files, is_whole, *predict(files, work, options.hksim))
    played = {}
    with locked(options.lock):
        for program in batch:
            with skips(program, results):
                if program.name in recorded:
                    checked = validate(program, recorded[program.name][0], work, options.hksim, options.runs)
                    played[program.name] = (checked, *measure(program, work, options.runs))
    for program in batch:
        with skips(program, results):
            if program.name in played:
                rows = rows_of(program, work, options, recorded[program.name], played[program.name])
                results["rows"] += rows
                for row in rows:
                    print(show(row), flush=True)


@contextlib.contextmanager
def skips(program, results):
    """Notes why a program cannot be played."""
    try:
        yield
    except (ValueError, OSError, subprocess.SubprocessError) as error:
        results["skipped"][program.name] = str(error)
        print(f"{program.name:18} skipped: {error}", flush=True)


if __name__ == "__main__":
    main()
