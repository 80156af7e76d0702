#!/usr/bin/env bash
# Runs all tests of the workspace, three test programs at a time.
#
#     .ci/tests.sh FOLDER
#
# cargo runs one test program at a time. Many tests wait for processes or for the disk, and a program's last test runs
# alone, so that leaves almost half of two processors idle, and two programs at a time an eighth. Here cargo only notes
# the programs in FOLDER, as files that run them. The output of each program is printed when it ends, passed tests
# included: it contains the reasons for skips. A program that takes longer than any should is ended, so that its output
# names the test that did not end.
set -euo pipefail

# Several times what the slowest program takes on two processors.
program_limit_s=2400

# Programs that change the machine's modes, or compare every mode with the kernel. Each runs alone.
alone='^[0-9]*-(hksim:modes|hksim-inspect:modes|hksim-conformance:rules)$'

# unended OUTPUT: the tests that the runner noted as slow, without those that ended later.
unended() {
    sed -n 's/^test \(.*\) has been running for over .*/\1/p' "$1" | while read -r name; do
        grep -aE "^test $name( - should panic)? \.\.\. " "$1" >/dev/null || echo "    $name"
    done
}

# run FOLDER FILE: runs one noted program and prints its output.
run() {
    local status=0
    timeout -k 20 "$program_limit_s" bash "$1/$2" >"$1/$2.output" 2>&1 </dev/null || status=$?
    exec 9>"$1/printing"
    flock 9
    printf '\n     Running %s\n' "${2#*-}"
    cat "$1/$2.output"
    [ "$status" = 0 ] || echo "error: ${2#*-}: exit status $status"
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then
        echo "error: ${2#*-}: ended after $program_limit_s s; tests that took over 60 s and had not ended:"
        unended "$1/$2.output"
    fi
    return "$status"
}

# note FOLDER PROGRAM ARGUMENT...: cargo's runner. The name of the file begins with the size of the program: the largest
# programs take longest, and begin first.
note() {
    local folder=$1 program
    shift
    program=$(basename "$1")
    {
        declare -px
        printf 'cd %q\nexec' "$PWD"
        printf ' %q' "$@"
        echo
    } >"$folder/$(stat -c %012s "$1")-$CARGO_PKG_NAME:${program%-*}"
}

case $1 in
    --run) run "$2" "$3"; exit ;;
    --note) note "${@:2}"; exit ;;
esac

script=$(realpath "$0")
rm -rf "$1"
mkdir -p "$1"
folder=$(realpath "$1")
runner="target.'cfg(unix)'.runner = ['$script', '--note', '$folder']"
cargo test --locked --workspace --tests --config "$runner" -- --show-output >"$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
programs=$(cd "$folder" && ls -r)
echo 'exec cargo test --locked --workspace --doc -- --show-output' >"$folder/0-documentation"

failed=0
grep -E "$alone" <<<"$programs" | xargs -P 1 -I{} "$script" --run "$folder" {} || failed=1
{ grep -vE "$alone" <<<"$programs"; echo 0-documentation; } | xargs -P 3 -I{} "$script" --run "$folder" {} || failed=1
exit "$failed"
