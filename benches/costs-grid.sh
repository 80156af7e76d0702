#!/usr/bin/env bash
# Checks how often the measured system time is inside the predicted range. Calibrates, then predicts and replays traces
# under policies. Prints a line for each pair, the share of pairs inside, and the widths of the ranges. As root it enables
# a hugetlb pool and 64K pages, and restores the settings at the end. Otherwise rows that need them are skipped.
#
#   benches/costs-grid.sh [HKSIM]                      default: target/release/hksim
#   TRACES="a.hkt b.hkt" HUGE="never thp" ROUNDS=20 benches/costs-grid.sh       only a part of the grid
#   PROFILE=p.toml benches/costs-grid.sh               uses this profile instead of calibrating
set -euo pipefail
cd "$(dirname "$0")/.."

hksim=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/hksim}")
huge_list=${HUGE:-never thp hugetlb mthp-64K}
source benches/settings.sh

# Records a program as an additional trace, or prints why it cannot be recorded.
record() { # NAME COMMAND...
    if "$hksim" record -o "$work/$1.hkt" -- "${@:2}" >>"$work/messages" 2>&1 7>&-; then
        traces+=("$work/$1.hkt")
    else
        echo "skipped: $1: $(tail -n 1 "$work/messages")"
    fi
}

if [ -n "${TRACES:-}" ]; then
    read -ra traces <<<"$TRACES"
else
    # Live sets of 60 and 130 MiB, and recordings of programs with 40 to 100 MiB: all exceed the caches.
    "$hksim" gen random-mixed --cycles 400k --ws 30k --min 100 --max 4k -o "$work/random-mixed.hkt" >"$work/messages" 2>&1 7>&-
    "$hksim" gen server --live 128M --events 600k -o "$work/server.hkt" >>"$work/messages" 2>&1 7>&-
    traces=("$work/random-mixed.hkt" "$work/server.hkt" traces/git-pack-objects.hkt traces/mariadbd.hkt)
    record sqlite sqlite3 :memory: ".read benches/costs_sqlite.sql"
    PYTHONMALLOC=malloc PYTHONHASHSEED=0 record python /usr/bin/python3 traces/jobs/json_job.py 30000
    record ruby ruby traces/jobs/ruby_job.rb 15000
fi

# The policies for one kind of huge pages, as flags after --huge.
policies() {
    case $1 in
    never) printf '%s\n' "--purge none" "--purge dontneed" "--purge free" "--purge unmap" \
        "--prefault populate --purge none" "--prefault populate-write" ;;
    thp) printf '%s\n' "--purge none" "--purge dontneed" "--purge free" "--prefault populate-write" ;;
    *) printf '%s\n' "--purge none" "--purge dontneed" ;;
    esac
}

profile=${PROFILE:-$work/machine.toml}
if [ -z "${PROFILE:-}" ]; then
    change "$thp/hugepages-64kB/enabled" madvise
    change "$pool" "$pool_pages"
    "$hksim" calibrate --rounds "${ROUNDS:-60}" -o "$profile" 7>&- | head -1
    restore
fi

rows=$work/rows.jsonl
: >"$rows"
for huge in $huge_list; do
    settings_for "$huge"
    for trace in "${traces[@]}"; do
        while read -r flags; do
            # shellcheck disable=SC2086 # flags are words
            "$hksim" validate "$trace" --huge "$huge" --superslab 2M --purge-delay 1ms $flags --profile "$profile" \
                --format json >"$work/result.json" 2>"$work/messages" 7>&- || true
            python3 benches/costs_grid.py row "$(basename "$trace" .hkt)" "$huge $flags" "$work/result.json" >>"$rows" 7>&-
            tail -n 1 "$rows" | python3 benches/costs_grid.py show 7>&-
        done < <(policies "$huge")
    done
    restore
done
python3 benches/costs_grid.py sum <"$rows" 7>&-
