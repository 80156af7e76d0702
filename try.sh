#!/usr/bin/env bash
# A tour of the main functions: build, record a real program, sweep designs, validate. Writes to target/try only.
# As root, the script announces and installs missing packages: a C compiler, and sqlite3 if there is no Python.
# HKSIM_NO_APT=1 prevents that.
set -euo pipefail
cd "$(dirname "$0")"
. .ci/packages.sh

out=target/try
job=traces/jobs/json_job.py

step() { printf '\n==> %s\n' "$*"; }

# record_something: sets `trace` to a recording of an installed program, or to one from the repository if that fails.
record_something() {
    trace=$out/app.hkt
    if [ -x /usr/bin/python3 ]; then
        step "hksim record: /usr/bin/python3 and its json module, with malloc instead of Python's own pools"
        PYTHONMALLOC=malloc PYTHONHASHSEED=0 "$hksim" record -o "$trace" -- /usr/bin/python3 "$job" 2000 && return
    fi
    if command -v sqlite3 >/dev/null; then
        step "hksim record: sqlite3 on a table in memory"
        "$hksim" record -o "$trace" -- sqlite3 :memory: ".read traces/jobs/sqlite_job.sql" && return
    fi
    step "hksim record: git log of this repository"
    git rev-parse --is-inside-work-tree >/dev/null 2>&1 &&
        "$hksim" record -o "$trace" -- git --no-pager log --stat >"$out/git.log" && return
    trace=traces/python-json.hkt
    step "no program could be recorded here; continuing with $trace"
}

need_cargo
if [ -x /usr/bin/python3 ]; then announce cc:gcc; else announce cc:gcc sqlite3:sqlite3; fi
need cc gcc
[ -x /usr/bin/python3 ] || want sqlite3 sqlite3 || true
mkdir -p "$out"

step "cargo build --release -p hksim (about four minutes the first time)"
cargo build --release --locked --quiet -p hksim
hksim=${CARGO_TARGET_DIR:-target}/release/hksim

record_something

step "hksim info: what the program requested"
"$hksim" info "$trace"

step "hksim sweep $trace --superslab 1M,2M --huge: what each design would cost"
"$hksim" sweep "$trace" --superslab 1M,2M --huge --plot="$out/app.svg"

step "hksim sweep --superslab 1M,2M --huge: the same for two built-in workloads"
"$hksim" sweep --superslab 1M,2M --huge --plot="$out/built-in.svg"

step "hksim validate $trace --huge never,thp: a real run, compared with the prediction"
"$hksim" validate "$trace" --huge never,thp

step "pictures: $out/app.svg and $out/built-in.svg; the recording: $trace"
