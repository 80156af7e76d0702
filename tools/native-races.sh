#!/bin/sh
# Tests the native allocator with tools that need a nightly toolchain: Miri (aliasing under both of Rust's aliasing
# models, data races, weak memory) and ThreadSanitizer (data races on the real kernel). It is not part of ./test.sh,
# because it takes about twenty minutes of one core.
#
#     tools/native-races.sh [miri|tsan...]
#
# A tool without its toolchain is skipped, with the reason. To install the toolchain:
#     rustup toolchain install nightly --component miri,rust-src
# SEEDS (default 5) is the number of schedules that Miri tries for each test with threads. Exits with status 1 if a tool
# finds an error.
set -u
cd "$(dirname "$0")/.." || exit 2
seeds=${SEEDS:-5}
target=${CARGO_TARGET_DIR:-target}
failed=0

step() {
    printf '\n==> %s\n' "$1"
    shift
    "$@" || failed=1
}

has() {
    cargo +nightly --version >/dev/null 2>&1 || { echo "skipped: $1: no nightly toolchain (rustup toolchain install nightly)"; return 1; }
    rustup component list --toolchain nightly --installed 2>/dev/null | grep -q "^$2" ||
        { echo "skipped: $1: the nightly toolchain has no $2 (rustup component add $2 --toolchain nightly)"; return 1; }
}

# miri FLAGS MODULE...: runs tests in Miri. Their output is not captured, because it contains Miri's findings.
miri() {
    flags=$1
    shift
    MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks -Zmiri-permissive-provenance $flags" CARGO_TARGET_DIR="$target/miri" \
        cargo +nightly miri test -q -p hksim-native --test memory -- --no-capture "$@"
}

run_miri() {
    has Miri miri || return 0
    for borrows in '' -Zmiri-tree-borrows; do
        step "Miri${borrows:+ $borrows}: refused calls and forks" miri "$borrows" faults forks
        step "Miri${borrows:+ $borrows}: threads, $seeds schedules" \
            miri "$borrows -Zmiri-many-seeds=0..$seeds -Zmiri-preemption-rate=0.05" threads
    done
}

run_tsan() {
    has ThreadSanitizer rust-src || return 0
    host=$(rustc -vV | sed -n 's/^host: //p')
    # ThreadSanitizer occupies the address that the allocator's reservation requests. As root, the allocator would then
    # be given address 0.
    runner=
    [ "$(id -u)" = 0 ] && runner='setpriv --bounding-set=-sys_rawio --inh-caps=-sys_rawio'
    RUSTFLAGS='-Zsanitizer=thread' CARGO_TARGET_DIR="$target/tsan" \
        step 'ThreadSanitizer' \
        env ${runner:+"CARGO_TARGET_$(echo "$host" | tr a-z- A-Z_)_RUNNER=$runner"} cargo +nightly test -q -Zbuild-std --target "$host" -p hksim-native --test memory
}

tools=${*:-miri tsan}
for tool in $tools; do
    case $tool in
    miri) run_miri ;;
    tsan) run_tsan ;;
    *) echo "no such tool: $tool" >&2; exit 2 ;;
    esac
done
exit $failed
