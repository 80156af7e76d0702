#!/usr/bin/env bash
# .ci/skips.sh LOG: lists the tests that were skipped in the run of test.sh that wrote LOG. Fails if .ci/skips-allowed.txt
# does not allow one of them.
#
# A test or script that cannot run prints a line that begins with `skipped: ` and the reason. Tests with a custom runner
# print `test NAME ... skipped: reason`, and hksim itself `hksim: skipped: reason`.
set -euo pipefail
allowed=$(dirname "$0")/skips-allowed.txt

# Each line: the name of what was skipped, a tab, `skipped: reason`. libtest prints `---- NAME stdout ----` before the
# output of a test.
list() {
    awk '
        /^---- .* stdout ----$/ { who = $2; next }
        /^==> /                 { who = "test.sh"; next }
        /^ *Running /           { who = $2 == "unittests" ? $3 : $2; next }
        /^(hksim: )?skipped: /  { sub(/^hksim: /, ""); print who "\t" $0; next }
        /^test .* \.\.\. skipped: / { name = $2; sub(/^test .* \.\.\. /, ""); print name "\t" $0 }
    ' "$1"
}

# The allowed reasons as patterns of grep -E, without the comments. `^` matches the start of the reason.
patterns() { sed 's/[[:space:]][[:space:]]*#.*//; /^#/d; /^$/d; s/^^/\tskipped: /; s/^\([^\t]\)/\tskipped: .*\1/' "$allowed"; }

skips=$(list "$1")
[ -n "$skips" ] || { echo "nothing was skipped"; exit 0; }
refused=$(grep -vE -f <(patterns) <<<"$skips" || true)
count() { grep -c . <<<"$1" || true; }
echo "$(count "$skips") skipped; $(count "$refused") of them not allowed by .ci/skips-allowed.txt"
[ -z "$refused" ] || { echo; sed 's/\t/: /; s/^/not allowed: /' <<<"$refused"; exit 1; }
