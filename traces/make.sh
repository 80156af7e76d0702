#!/usr/bin/env bash
# Makes the recordings of this folder and their manifest anew: traces/make.sh HKSIM, with a built hksim.
set -euo pipefail
hksim=$(realpath "$1")
cd "$(dirname "$0")"

# entry FILE COMMAND VERSIONS DESCRIPTION: one recording's lines of the manifest.
entry() {
    printf '\n[[trace]]\nfile = "%s"\nprogram = "%s"\ncommand = '\''%s'\''\nversions = "%s"\n' "$1" "$4" "$2" "$3"
    printf 'date = %s\nsha256 = "%s"\nlicence = "MIT OR Apache-2.0"\n' "$(date -u +%F)" "$(sha256sum "$1" | cut -d' ' -f1)"
}

# record FILE WORD...: the program's own output does not matter here.
record() { "$hksim" record -o "$1" -- "${@:2}" >/dev/null; }

PYTHONMALLOC=malloc PYTHONHASHSEED=0 record python-json.hkt /usr/bin/python3 jobs/json_job.py 800
record sqlite-memory.hkt sqlite3 :memory: ".read jobs/sqlite_job.sql"

libc=$(ldd --version | sed -n '1s/.* //p')
{
    echo "# Written by make.sh. All recordings are our own."
    entry python-json.hkt \
        "PYTHONMALLOC=malloc PYTHONHASHSEED=0 hksim record -o python-json.hkt -- /usr/bin/python3 jobs/json_job.py 800" \
        "$(/usr/bin/python3 --version), glibc $libc" "json_job.py: encodes and decodes 800 records five times"
    entry sqlite-memory.hkt \
        "hksim record -o sqlite-memory.hkt -- sqlite3 :memory: \".read jobs/sqlite_job.sql\"" \
        "SQLite $(sqlite3 --version | cut -d' ' -f1), glibc $libc" "sqlite_job.sql: a table of 4000 rows in memory"
} >MANIFEST.toml
