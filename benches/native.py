#!/usr/bin/env python3
"""The speed of the native allocator, compared with others on the same loads.

    cargo build --release -p hksim-native-ffi && benches/native.py [NAME=LIB.so ...]

Builds benches/native/loads.c, which describes the loads. Each round runs every allocator on every load once, so that a
disturbance affects all allocators alike. The allocators are glibc, `hksim` (target/release), those of mimalloc, jemalloc
and tcmalloc that are installed, and those given by a path. Figures:

    instr     instructions per pair of one allocation and one free, including the loop, counted by valgrind's callgrind:
              the difference between a longer and a shorter run, so that start-up cancels out. Exact without threads.
    ns        CPU time per pair in the program's own loop: median and [least, most] of the rounds, after a warm-up. On a
              busy or virtual machine compare only figures of the same load.
    sys       system time per pair in ns, which is part of `ns`; median. It is the cost of faults. For huge pages it also
              depends on whether the host has backed the memory.
    faults    minor faults of the loops
    RSS       peak of the whole process

An allocator that is not available is skipped, with a message.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
INSTALLED = {
    "mimalloc": (["libmimalloc.so.3", "libmimalloc.so.2"], "libmimalloc2.0"),
    "jemalloc": (["libjemalloc.so.2"], "libjemalloc2"),
    "tcmalloc": (["libtcmalloc_minimal.so.4"], "libtcmalloc-minimal4"),
}
# By name: the program's load and its last two arguments, cycles of a timed run, and cycles of the shorter counted run.
LOADS = {
    "random-mixed 400": ("random-mixed", 400, 1, 20_000_000, 200_000),
    "random-mixed 100k": ("random-mixed", 100_000, 1, 20_000_000, 1_000_000),
    "random-mixed 1M": ("random-mixed", 1_000_000, 1, 20_000_000, 4_000_000),
    "independent 400": ("independent", 400, 1, 20_000_000, 200_000),
    "independent 100k": ("independent", 100_000, 1, 20_000_000, 1_000_000),
    "tiny-hot 32 x1": ("tiny-hot", 32, 1, 20_000_000, 200_000),
    "tiny-hot 32 x64": ("tiny-hot", 32, 64, 20_000_000, 200_000),
    "tiny-hot 512 x64": ("tiny-hot", 512, 64, 20_000_000, 200_000),
    "larson 1": ("larson", 1000, 1, 8_000_000, 200_000),
    "larson 2": ("larson", 1000, 2, 8_000_000, 200_000),
    "mstress 1": ("mstress", 1000, 1, 8_000_000, 200_000),
    "mstress 2": ("mstress", 1000, 2, 8_000_000, 200_000),
}


def library_of(files):
    """The first of several library files that exists in the loader's usual folders."""
    folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folders += [f"{base}/{triplet}" for base in ("/usr/local/lib", "/usr/lib", "/lib") for triplet in (f"{os.uname().machine}-linux-gnu", "")]
    return next((path for file in files for folder in folders if (path := Path(folder) / file).is_file()), None)


def allocators(named):
    """Name -> library (None: glibc)."""
    found = {"glibc": None}
    for name, (files, package) in INSTALLED.items():
        path = library_of(files)
        if path:
            found[name] = path
        else:
            print(f"skipped: {name}: not installed; Debian has it in {package}", file=sys.stderr)
    ours = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/libhksim_native_ffi.so"
    if ours.is_file():
        found["hksim"] = ours
    elif not any(word.startswith("hksim=") for word in named):
        sys.exit(f"{ours} does not exist; run cargo build --release -p hksim-native-ffi")
    for word in named:
        name, is_pair, path = word.partition("=")
        if not is_pair or not Path(path).is_file():
            sys.exit(f"{word}: write NAME=LIB.so with the path of a library")
        found[name] = Path(path).resolve()
    return found


def environment(library):
    """This environment, with a library preloaded."""
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return clean if library is None else clean | {"LD_PRELOAD": str(library)}


def timed(program, library, load, cycles):
    """A run: (CPU ns per pair, system-time ns per pair, faults, bytes of peak RSS)."""
    kind, first, second, *_ = load
    child = subprocess.Popen([program, kind, str(cycles), str(first), str(second)], env=environment(library), stdout=subprocess.PIPE, text=True)
    printed = child.stdout.read().split()
    if child.wait() != 0 or len(printed) != 6:
        sys.exit(f"{library}: {kind} ended with {child.returncode}")
    return float(printed[1]), float(printed[3]), int(printed[4]), int(printed[5]) * 1024


def counted(program, library, load, folder):
    """Instructions per pair."""
    kind, first, second, _, cycles = load
    totals, pairs = [], []
    for times in (1, 2):
        words = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", program, kind, str(cycles * times), str(first), str(second)]
        ran = subprocess.run(words, env=environment(library), capture_output=True, text=True)
        total = re.search(r"Collected : (\d+)", ran.stderr)
        if ran.returncode != 0 or not total:
            return None
        totals.append(int(total.group(1)))
        pairs.append(float(ran.stdout.split()[0]))
    return (totals[1] - totals[0]) / (pairs[1] - pairs[0])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("libraries", nargs="*", metavar="NAME=LIB.so")
    arguments.add_argument("--rounds", type=int, default=5, help="timed rounds; 0: count instructions only [5]")
    arguments.add_argument("--only", default="", help="only loads whose name begins with this text")
    arguments.add_argument("--allocators", default="", help="only these allocators, separated by commas")
    arguments.add_argument("--shorter", type=int, default=1, help="divide the cycles of timed runs by this number [1]")
    arguments.add_argument("--json", type=Path, help="write all figures to a file")
    arguments = arguments.parse_args()
    found = allocators(arguments.libraries)
    if arguments.allocators:
        found = {name: found[name] for name in arguments.allocators.split(",")}
    loads = {name: load for name, load in LOADS.items() if name.startswith(arguments.only)}
    can_count = shutil.which("valgrind") is not None
    if not can_count:
        print("skipped: instr: no valgrind; Debian has it in valgrind", file=sys.stderr)
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/loads"
        subprocess.run(["cc", "-O2", "-fno-builtin-malloc", "-pthread", "-o", program, HERE / "native/loads.c"], check=True)
        for load_name, load in loads.items():
            runs = {name: [] for name in found}
            for turn in range(arguments.rounds + 1 if arguments.rounds else 0):
                for name, library in found.items():
                    run = timed(program, library, load, load[3] // arguments.shorter)
                    if turn:
                        runs[name].append(run)
            for name, library in found.items():
                instructions = counted(program, library, load, folder) if can_count else None
                figures[load_name, name] = {"instructions": instructions, "runs": runs[name]}
            show(load_name, {name: figures[load_name, name] for name in found})
    if arguments.json:
        rows = [{"load": load, "allocator": name} | row for (load, name), row in figures.items()]
        arguments.json.write_text(json.dumps({"machine": list(os.uname()), "rows": rows}, indent=1) + "\n")


def show(load, row):
    """A table of one load."""
    print(f"\n{load}\n{'':12} {'instr':>8} {'ns':>22} {'sys':>6} {'faults':>8} {'RSS MiB':>8}")
    for name, figure in row.items():
        instructions = "-" if figure["instructions"] is None else f"{figure['instructions']:.1f}"
        times = "-", "-", "-", "-"
        if figure["runs"]:
            ns, system_ns, faults, rss = zip(*figure["runs"])
            spread = f"{statistics.median(ns):.2f} [{min(ns):.2f}, {max(ns):.2f}]"
            times = spread, f"{statistics.median(system_ns):.1f}", statistics.median_low(faults), f"{statistics.median(rss) / 2**20:.1f}"
        print(f"{name:12} {instructions:>8} {times[0]:>22} {times[1]:>6} {times[2]:>8} {times[3]:>8}", flush=True)


if __name__ == "__main__":
    main()
