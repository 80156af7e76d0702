#!/usr/bin/env bash
# Validates separately mapped SuperSlabs (--align trim, kernel) in 20 random address-space layouts, and twice in the fixed
# layout of setarch -R. Prints one line for each run, and the number of different layouts of each design. Exits with 1
# unless every row of every run is ok.
#
#   benches/validate-align.sh [HKSIM]                  default: target/release/hksim
#   RUNS=5 SUPERSLAB=1M HUGE=thp benches/validate-align.sh      a part of the runs; also PREFAULT, PURGE, TRACES
set -euo pipefail
cd "$(dirname "$0")/.."

hksim=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/hksim}")
runs=${RUNS:-20}
superslab=${SUPERSLAB:-256K,1M,2M,4M}
huge=${HUGE:-never,thp}
prefault=${PREFAULT:-off,populate}
purge=${PURGE:-dontneed,unmap}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${TRACES:-}" ]; then
    "$hksim" gen server --live 6M --events 30k --threads 2 -o "$work/server.hkt"
    TRACES="$work/server.hkt traces/sqlite-memory.hkt"
fi

# validate NAME COMMAND...: runs one validation under COMMAND (such as env), and prints one line.
validate() {
    local name=$1 out=$work/$1.json status=0
    shift
    # shellcheck disable=SC2086 # a list of files
    "$@" "$hksim" validate $TRACES --arena 1G --align trim,kernel --superslab "$superslab" --huge "$huge" \
        --prefault "$prefault" --purge "$purge" --purge-delay 300us --format json >"$out" || status=$?
    python3 - "$name" "$out" "$status" <<'PYTHON'
import collections, json, sys
name, path, status = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows = json.load(open(path))["rows"]
verdicts = collections.Counter(f"{row['class']} {row['verdict']}" for row in rows)
moved = sum(any(value for key, value in row["layout_residual"].items() if key != "mmaps" and key != "os_calls")
            for row in rows if row.get("layout_residual"))
summary = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
print(f"{name}: {summary}; {moved} rows differ from those at modelled addresses", flush=True)
for row in rows:
    if row["verdict"] != "ok":
        print(f"  {row['trace_name']} {row['policy']['align']} {row['policy']['superslab_bytes'] >> 10}K {row['policy']['huge']} "
              f"{row['policy']['prefault']} {row['policy']['purge']}: {row['verdict']}: {row['reason']}")
sys.exit(status)
PYTHON
}

failed=0
for run in $(seq "$runs"); do validate "random-$run" env || failed=1; done
if setarch -R true 2>/dev/null; then
    for run in 1 2; do validate "fixed-$run" setarch -R || failed=1; done
else
    echo "skipped: setarch -R is not allowed here"
fi

python3 - "$work"/random-*.json <<'PYTHON'
import collections, json, sys
layouts, installs = collections.defaultdict(set), collections.defaultdict(collections.Counter)
for path in sys.argv[1:]:
    for row in json.load(open(path))["rows"]:
        policy = row["policy"]
        design = " ".join([row["trace_name"].rsplit("/", 1)[-1], policy["align"], f"{policy['superslab_bytes'] >> 10}K", policy["huge"],
                           policy["prefault"], policy["purge"]])
        layouts[design].add(tuple(row["measured"].get("addresses") or []))
        installs[design][row["measured"]["installs"]["total"] if row["measured"]["installs"] else None] += 1
several = {design: counts for design, counts in installs.items() if len(counts) > 1}
print(f"{len(installs)} designs, {sum(map(len, layouts.values()))} layouts; {len(several)} designs whose installs depend on the layout")
for design, counts in sorted(several.items()):
    print(f"  {design}: " + ", ".join(f"{total} installs in {runs} runs" for total, runs in sorted(counts.items())))
PYTHON
exit "$failed"
