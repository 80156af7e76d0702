#!/usr/bin/env bash
# Memory limits under cgroup v2: generates random static C programs, records them on other kernels under software emulation,
# predicts there whether they survive five limits each, and runs them under these limits in groups of cgroup v2
# (hksim validate --memory-limit). Prints a table for docs/lab/memory-limits.md.
#
#   tools/kernel-matrix/limits.sh                 6.1 and 6.12
#   tools/kernel-matrix/limits.sh 6.8             these kernels of the list in emulation.sh
#   PROGRAMS=30 SEED=2 tools/kernel-matrix/limits.sh 6.12     more or other programs
#   HKSIM=path tools/kernel-matrix/limits.sh      with an existing static hksim
#
# Needs a C compiler, and what run.sh needs.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/kernel-matrix/emulation.sh

count=${PROGRAMS:-10}
seed=${SEED:-1}
# With one processor, QEMU executes `lock cmpxchg` as a load and a store: two page faults instead of one.
# shellcheck disable=SC2034 # read by boot
processors=2
programs=$work/limits

# Programs are not position-independent, so that no kernel places the program itself differently.
prepare() {
    local source
    rm -rf "$programs"
    mkdir -p "$programs"
    python3 tools/kernel-matrix/limits.py generate "$programs" "$count" "$seed"
    for source in "$programs"/*.c; do
        cc -O1 -static -no-pie -o "${source%.c}" "$source"
        rm "$source"
    done
}

# The script that the emulated machine runs. The limits of a program are its predicted least limit plus and minus 3 pages,
# three quarters and half of it, and twice as much.
job() {
    cat <<'JOB'
export PATH=/bin
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
cd /files
for program in program-*; do
    hksim record --memory --no-aslr -o there.hkm -- "./$program" </dev/null >/dev/null
    least=$(hksim sim there.hkm --kernel host --thp madvise --memory-limit 1T --format json |
        sed -n 's/.*"least_limit_bytes": *\([0-9]*\).*/\1/p' | head -1)
    pages=$((least / 4096))
    limits=
    for limit in $((pages + 3)) $((pages - 3)) $((pages * 3 / 4)) $((pages / 2)) $((pages * 2)); do
        limits=$limits,$((limit * 4096))
    done
    echo "begin $program validate"
    hksim validate there.hkm --run-recorded --thp madvise --set-modes --memory-limit "${limits#,}" --runs 2 --format json </dev/null
    echo "end $program validate $?"
    rm -rf there.hkm there.hkm.processes
done
cat /tmp/stderr
echo "end all 0"
JOB
}

need_emulator
want cc gcc || { echo "skipped: no C compiler"; exit 0; }
build
step "programs"
prepare
job >"$work/job"
make_initramfs "$work/job" "$programs"
[ $# -gt 0 ] || set -- 6.1 6.12
failed=0
while read -r version pattern suite; do
    if [ -z "$version" ] || ! wanted "$version" "$@"; then continue; fi
    if ! fetch "$version" "$pattern" "$suite" || ! boot "$version" "limits-$version"; then
        failed=1
        continue
    fi
    python3 tools/kernel-matrix/limits.py table "$version" "$(cat "$work/kernels/$version/package")" \
        "$work/results/limits-$version.out" || failed=1
done <<<"$kernels"
exit "$failed"
