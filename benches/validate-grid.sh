#!/usr/bin/env bash
# Validates five grids on two workloads and two recordings: superslab x huge x prefault x purge, superslab x huge x
# free-order x slab-choice, superslab x huge x classes, superslab x huge x purge along a curve, and superslab x huge x
# front-cache x meta x header. Prints a line for each grid, trace and value of huge, with the number of ok rows that are
# not exact but within a bound. Exits with 1 if any row fails.
# As root it enables a hugetlb pool, huge-page sizes below 2M, and THP mode always. It restores these settings whichever
# way it ends, even if it is killed. Without root, rows that need the settings are skipped with the reason.
#
#   benches/validate-grid.sh [HKSIM]                   default: target/release/hksim
#   HUGE="never thp" SUPERSLAB=2M benches/validate-grid.sh      a part of the grid; also PREFAULT, PURGE, FREE_ORDER,
#                                                               SLAB_CHOICE, CLASSES, FRONT_CACHE, TRACES
set -euo pipefail
cd "$(dirname "$0")/.."

hksim=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/hksim}")
huge_list=${HUGE:-never thp hugetlb mthp-64K collapse system}
superslab=${SUPERSLAB:-256K,1M,2M,4M,32M}
prefault=${PREFAULT:-off,populate,populate-write,populate-read,touch,memset}
purge=${PURGE:-none,dontneed,free,unmap}
free_order=${FREE_ORDER:-lifo,fifo,address}
slab_choice=${SLAB_CHOICE:-oldest,newest,fullest,lowest}
classes=${CLASSES:-default,hakmem,linear,spacing-1,spacing-8,8/16/24/40/200,16/64/1008/5008}
front_cache=${FRONT_CACHE:-1,16,255}
# The purge delay is short enough that the workloads both purge and reuse memory.
delay=${PURGE_DELAY:-200us}

source benches/settings.sh

if [ -n "${TRACES:-}" ]; then
    read -ra traces <<<"$TRACES"
else
    "$hksim" gen random-mixed --cycles 60k --ws 4000 --min 100 --max 6k -o "$work/random-mixed.hkt" >"$work/messages" 2>&1 7>&-
    "$hksim" gen server --live 16M --events 100k -o "$work/server.hkt" >>"$work/messages" 2>&1 7>&-
    traces=("$work/random-mixed.hkt" "$work/server.hkt" traces/sqlite-memory.hkt traces/python-json.hkt)
fi

failed=0

# rows TRACE HUGE AXES FLAG...: validates the designs that the flags span, and prints a line with the numbers of verdicts.
rows() {
    local trace=$1 huge=$2 axes=$3 result=$work/result.txt status=0
    shift 3
    "$hksim" validate "$trace" --huge "$huge" --purge-delay "$delay" --arena 4G "$@" >"$result" 7>&- || status=$?
    count() { grep -v '^verdict' "$result" | grep -c " $1\$" || true; }
    printf '%-18s %-12s %-8s ok %4d, bounded %4d  skipped %4d  failed %4d\n' "$(basename "$trace" .hkt)" "$huge" "$axes" \
        "$(count ok)" "$(count 'bounded  *ok')" "$(count skipped)" "$(count FAILED)"
    grep -E '^row [0-9]+: skipped' "$result" | sed 's/^row [0-9]*: //' | sort -u | head -2 || true
    if [ "$status" != 0 ]; then
        failed=1
        grep -E ' FAILED$|^row [0-9]+: FAILED' "$result" || true
    fi
}

for huge in $huge_list; do
    settings_for "$huge"
    for trace in "${traces[@]}"; do
        rows "$trace" "$huge" pages --superslab "$superslab" --prefault "$prefault" --purge "$purge"
        rows "$trace" "$huge" reuse --superslab "$superslab" --free-order "$free_order" --slab-choice "$slab_choice"
        rows "$trace" "$huge" classes --superslab "$superslab" --classes "$classes"
        rows "$trace" "$huge" curve --superslab "$superslab" --purge "$purge" --purge-curve smoothstep --purge-spans yes
        rows "$trace" "$huge" front --superslab "$superslab" --front-cache "$front_cache" --meta inband,sidecar --header none,full
    done
    restore
done
exit "$failed"
