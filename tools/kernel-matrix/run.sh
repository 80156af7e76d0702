#!/usr/bin/env bash
# Boots distribution kernels under software emulation, runs `hksim rules` on each, and writes docs/lab/kernel-matrix.md.
# Under emulation, counts are exact but times are meaningless. All files are kept in target/kernel-matrix.
#
#   tools/kernel-matrix/run.sh                    all kernels of the list
#   tools/kernel-matrix/run.sh 6.1 6.12           only these kernels; keeps the results of the others
#   HKSIM=path tools/kernel-matrix/run.sh 6.1     with an existing static hksim
#   RANDOM_SCRIPTS=2000 SEED=7 tools/kernel-matrix/run.sh      more or other random scripts, in all combinations of THP modes
#   KERNEL_SCRIPT=file tools/kernel-matrix/run.sh 6.1          one page-op script on that kernel; stores no result
#
# Needs qemu-system-x86_64, busybox (static), apt-get and dpkg-deb: Debian or a derivative.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/kernel-matrix/emulation.sh

scripts=${RANDOM_SCRIPTS:-700}
seed=${SEED:-1}

# The script that the emulated machine runs. Each part ends with a line that contains its status, so that missing output
# does not count as success.
job() {
    if [ -n "${KERNEL_SCRIPT:-}" ]; then
        echo 'hksim rules --set-modes --script /files/script'
        echo 'echo "end script $?"; cat /tmp/stderr'
        return
    fi
    cat <<JOB
# Scripts that create the maximum number of mappings take long under emulation.
echo 2000 >/proc/sys/vm/max_map_count
hksim rules --set-modes --format json
echo "end rules \$?"
hksim rules --set-modes --all-modes --random $scripts --seed $seed --format json
echo "end random \$?"
cat /tmp/stderr
echo "end all 0"
JOB
}

# here PART ARGUMENT...: runs a part of the job on the kernel of this machine.
here() {
    local code=0
    "$HKSIM" rules --set-modes --format json "${@:2}" >>"$work/results/here.out" || code=$?
    echo "end $1 $code" >>"$work/results/here.out"
    return "$code"
}

need_emulator
build
files=$work/files
rm -rf "$files"
mkdir -p "$files"
[ -z "${KERNEL_SCRIPT:-}" ] || cp "$KERNEL_SCRIPT" "$files/script"
job >"$work/job"
make_initramfs "$work/job" "$files"
failed=0
while read -r version pattern suite; do
    if [ -z "$version" ] || ! wanted "$version" "$@"; then continue; fi
    if ! fetch "$version" "$pattern" "$suite" || ! boot "$version"; then
        failed=1
    elif [ -n "${KERNEL_SCRIPT:-}" ]; then
        cat "$work/results/$version.out"
    else
        python3 tools/kernel-matrix/matrix.py add "$version" "$(cat "$work/kernels/$version/package")" \
            "$work/results/$version.out" || failed=1
    fi
done <<<"$kernels"
# The kernel of this machine: as root, and only on request, because the machine's THP modes change meanwhile.
if [[ " $* " == *" here "* ]] && [ -z "${KERNEL_SCRIPT:-}" ]; then
    step "this machine"
    : >"$work/results/here.out"
    here rules || failed=1
    here random --all-modes --random "$scripts" --seed "$seed" || failed=1
    echo "end all 0" >>"$work/results/here.out"
    python3 tools/kernel-matrix/matrix.py add here "$(uname -r)" "$work/results/here.out" || failed=1
fi
[ -n "${KERNEL_SCRIPT:-}" ] || python3 tools/kernel-matrix/matrix.py write
exit "$failed"
