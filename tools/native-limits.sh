#!/bin/sh
# Tests the native allocator with limited memory: with vm.overcommit_memory=2, and with a hugetlb pool that is too small.
# Needs root: it changes settings of the machine for a few seconds, and restores them whichever way it ends.
#
#     tools/native-limits.sh [HKSIM]
#
# Prints one line per case: ok, FAILED, or skipped with the reason. Exits with status 1 if a case failed.
set -u

hksim=$(realpath "$(command -v "${1:-hksim}")") || exit 2
here=$(cd "$(dirname "$0")/.." && pwd)
vm=/proc/sys/vm
[ -w $vm/overcommit_memory ] || { echo 'skipped: all: only root may change vm settings'; exit 0; }
command -v cc >/dev/null 2>&1 || { echo 'skipped: all: no C compiler (cc) is installed'; exit 0; }
# Only one process at a time may change settings. `hksim rules --set-modes` uses the same lock.
if exec 6</sys/kernel/mm; then
    flock -n 6 || {
        echo "waiting: another process changes this machine's settings" >&2
        flock 6
    }
fi
work=$(mktemp -d)
mode=$(cat $vm/overcommit_memory)
ratio=$(cat $vm/overcommit_ratio)
kbytes=$(cat $vm/overcommit_kbytes)
pool=$(cat $vm/nr_hugepages)
restore() {
    echo "$mode" >$vm/overcommit_memory
    # Setting either the ratio or the number of kbytes resets the other.
    if [ "$kbytes" = 0 ]; then echo "$ratio" >$vm/overcommit_ratio; else echo "$kbytes" >$vm/overcommit_kbytes; fi
    [ "$(cat $vm/nr_hugepages)" = "$pool" ] || echo "$pool" >$vm/nr_hugepages
    rm -rf "$work"
}
trap restore EXIT
trap 'exit 2' INT TERM
failed=0
for program in scarce crowd; do
    cc -O1 -w -fno-builtin -pthread -o "$work/$program" "$here/crates/cli/tests/native/c/$program.c" || exit 2
done

# stats NAME: prints the number with this name from the statistics.
stats() {
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$work/stats"
}

# check NAME WANTED-OUTPUT POLICY... -- PROGRAM...
check() {
    name=$1
    wanted=$2
    shift 2
    rm -f "$work/stats"
    got=$("$hksim" run --stats "json:$work/stats" "$@" 2>&1)
    if echo "$got" | grep -q "$wanted"; then
        echo "ok: $name: $got; arena $(($(stats arena_bytes) >> 20)) MiB, fell back to thp $(stats fallbacks_to_thp), to 4K $(stats fallbacks_to_4k)"
    else
        echo "FAILED: $name: $got"
        failed=1
    fi
}

# Limits committed memory to the current amount plus this number of MiB.
for room_mib in 4096 600; do
    committed=$(sed -n 's/^Committed_AS: *\([0-9]*\) kB/\1/p' /proc/meminfo)
    echo $((committed + room_mib * 1024)) >$vm/overcommit_kbytes
    echo 2 >$vm/overcommit_memory
    check "overcommit_memory=2, $room_mib MiB left" ' kept$' --huge never -- "$work/scarce"
    check "overcommit_memory=2, $room_mib MiB left, threads" '^60 threads$' --huge never --superslab 64K --slab 16K -- "$work/crowd" 60
    echo "$mode" >$vm/overcommit_memory
done

if echo 8 2>/dev/null >$vm/nr_hugepages && [ "$(cat $vm/nr_hugepages)" -ge 8 ]; then
    check 'a pool of 8 huge pages' ' kept$' --huge hugetlb -- "$work/scarce"
    check 'a pool of 8 huge pages, else 4K' ' kept$' --huge hugetlb-plain -- "$work/scarce"
else
    echo 'skipped: a small hugetlb pool: the kernel cannot allocate huge pages'
fi
exit $failed
