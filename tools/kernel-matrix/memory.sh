#!/usr/bin/env bash
# Predicts programs on other kernels and measures them there. Records the page operations of static programs on this
# kernel, predicts them for other kernels, runs the same programs on these kernels under software emulation in each THP
# mode, and writes docs/lab/memory-kernels.md. Under emulation, counts are exact but times are meaningless.
#
#   tools/kernel-matrix/memory.sh                 5.15 and 6.1
#   tools/kernel-matrix/memory.sh 6.8             these kernels of the list in emulation.sh; keeps the results of others
#   HKSIM=path tools/kernel-matrix/memory.sh      with an existing static hksim
#
# Needs root (recording), a C compiler, libsqlite3.a, and what run.sh needs.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tools/kernel-matrix/emulation.sh

modes=never,madvise,always
# With one processor, QEMU executes `lock cmpxchg` as a load and a store: two page faults instead of one.
# shellcheck disable=SC2034 # read by boot
processors=2
# The same directory on both machines: a static program with glibc allocates the path of its directory.
programs=$work/programs

# Names and commands.
commands='
sort ./busybox sort words.txt
awk ./busybox awk -f count.awk words.txt
blocks ./blocks
arenas ./arenas
sqlite ./sqlite
'

# Builds the programs and their inputs. They are not position-independent, so that no kernel places the program itself
# differently.
prepare() {
    local name
    rm -rf "$programs"
    mkdir -p "$programs"
    cp "$(command -v busybox)" "$programs/busybox"
    for name in blocks arenas; do
        cc -O1 -static -no-pie -pthread -o "$programs/$name" "tools/kernel-matrix/programs/$name.c"
    done
    cc -O1 -static -no-pie -o "$programs/sqlite" tools/kernel-matrix/programs/sqlite.c -lsqlite3 -lm 2>"$work/link.log" ||
        { cat "$work/link.log" >&2; return 1; }
    busybox awk 'BEGIN { x = 1; for (i = 0; i < 60000; i++) { x = (x * 1103515245 + 12345) % 2147483648
        printf "word%d some text of varying length %s\n", x % 20011, substr("abcdefghijklmnopqrstuvwxyz", 1, x % 26) } }' \
        >"$programs/words.txt"
    cat >"$programs/count.awk" <<'END_OF_PROGRAM'
{ seen[$1] = seen[$1] "," $0 } END { for (word in seen) print word, seen[word] }
END_OF_PROGRAM
}

# The environment is the same on both machines.
in_programs() { (cd "$programs" && env -i PATH=/bin "$@"); }

# Records each program with huge pages off.
record() {
    local name command
    while read -r name command; do
        [ -n "$name" ] || continue
        # shellcheck disable=SC2086 # words of a command
        in_programs "$HKSIM" record --memory --no-aslr -o "$name.hkm" -- $command </dev/null >/dev/null
    done <<<"$commands"
}

# predict VERSION: the predictions of this machine for another kernel.
predict() {
    local name rest mode
    while read -r name rest; do
        [ -n "$name" ] || continue
        for mode in ${modes//,/ }; do
            echo "begin $name $mode"
            "$HKSIM" sim "$programs/$name.hkm" --kernel "$1" --thp "$mode" --format json
            echo "end $name $mode $?"
        done
    done <<<"$commands"
}

# The script that the emulated machine runs. It records each program once more, so that the addresses on that kernel are
# known, and then runs the program again under each mode to validate both recordings.
job() {
    local name command
    printf 'export PATH=/bin; mkdir -p "%s"; mv /files "%s"; cd "%s"\n' "${programs%/*}" "$programs" "$programs"
    while read -r name command; do
        [ -n "$name" ] || continue
        cat <<JOB
env -i PATH=/bin hksim record --memory --no-aslr -o there.hkm -- $command </dev/null >/dev/null
echo "begin $name there"
hksim sim there.hkm --kernel host --thp never --format json
echo "end $name there \$?"
for recording in there $name; do
    echo "begin $name validate-\$recording"
    env -i PATH=/bin hksim validate \$recording.hkm --run-recorded --thp $modes --set-modes --runs 2 --format json </dev/null
    echo "end $name validate-\$recording \$?"
done
rm -f there.hkm
JOB
    done <<<"$commands"
    echo 'cat /tmp/stderr; echo "end all 0"'
}

need_emulator
[ "$(id -u)" = 0 ] || { echo "skipped: recording needs root"; exit 0; }
want cc gcc || { echo "skipped: no C compiler"; exit 0; }
[ -e /usr/include/sqlite3.h ] || install libsqlite3-dev
build
step "programs and recordings"
prepare
record
job >"$work/job"
make_initramfs "$work/job" "$programs"
[ $# -gt 0 ] || set -- 5.15 6.1
failed=0
while read -r version pattern suite; do
    if [ -z "$version" ] || ! [[ " $* " == *" $version "* ]]; then continue; fi
    if ! fetch "$version" "$pattern" "$suite" || ! boot "$version" "memory-$version"; then
        failed=1
        continue
    fi
    predict "$version" >"$work/results/memory-$version.predicted"
    python3 tools/kernel-matrix/memory.py add "$version" "$(cat "$work/kernels/$version/package")" \
        "$work/results/memory-$version.predicted" "$work/results/memory-$version.out" || failed=1
done <<<"$kernels"
python3 tools/kernel-matrix/memory.py write
exit "$failed"
