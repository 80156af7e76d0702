#!/bin/bash
# Runs unmodified test programs of other allocators on the native allocator: those that use only the standard interface.
# Each must end as it does without the native allocator.
#
#     tools/native-tests.sh [HKSIM] [SUITE...]
#
# HKSIM is the binary (default: hksim). SUITE: glibc mimalloc jemalloc gperftools (default: all). apt-get fetches Debian's
# source packages into the folder SOURCES (default: a temporary folder; an existing folder is reused), without root and
# without changing the system's lists. Prints one line per test and policy: ok, FAILED, or skipped with the reason. Exits
# with status 1 if a test failed.
set -u

hksim=$(realpath "$(command -v "${1:-hksim}")") || exit 2
[ $# -gt 0 ] && shift
suites=${*:-glibc mimalloc jemalloc gperftools}
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sources=${SOURCES:-$work/sources}
mkdir -p "$sources"
sources=$(realpath "$sources")
failed=0

policies=(
    '--preset default'
    '--huge never --superslab 1M --meta sidecar --purge-delay 0'
)

apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$sources/deb-src.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$sources/lists" \
        -o Dir::Cache="$sources/cache" -o APT::Sandbox::User= "$@"
}

# Fetches a source package and sets $folder to its folder.
fetch() {
    folder=$(find "$sources" -maxdepth 1 -type d -name "$1-[0-9]*" | head -1)
    [ -n "$folder" ] && return
    for tool in apt-get dpkg-source cc c++ make; do
        command -v "$tool" >/dev/null 2>&1 || { echo "skipped: $suite: $tool is not installed"; return 1; }
    done
    if [ ! -d "$sources/lists" ]; then
        mkdir -p "$sources/lists/partial" "$sources/cache/archives/partial"
        release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
        echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $release main" >"$sources/deb-src.list"
        apt update >/dev/null 2>&1
    fi
    (cd "$sources" && apt source "$1" >/dev/null 2>&1)
    folder=$(find "$sources" -maxdepth 1 -type d -name "$1-[0-9]*" | head -1)
    [ -n "$folder" ] || { echo "skipped: $suite: cannot fetch Debian's source package $1 (no network, or not Debian)"; return 1; }
}

# try NAME COMMAND...: runs a test without the native allocator, and then with it under each policy.
try() {
    name=$suite/$1
    shift
    if ! timeout 300 "$@" >"$work/without" 2>&1; then
        echo "skipped: $name: also fails without the allocator: $(tail -1 "$work/without")"
        return
    fi
    for policy in "${policies[@]}"; do
        # shellcheck disable=SC2086 # a policy is several words
        if timeout 300 "$hksim" run $policy -- "$@" >"$work/with" 2>&1 && ! grep -q '^hksim: ' "$work/with"; then
            echo "ok: $name under $policy"
        else
            echo "FAILED: $name under $policy"
            tail -3 "$work/with"
            failed=1
        fi
    done
}

# build NAME COMPILER ARGS...: compiles a test; skips it if it does not compile.
build() {
    name=$1
    shift
    "$@" >"$work/build" 2>&1 && return
    echo "skipped: $suite/$name: does not compile: $(grep -m1 error "$work/build")"
    return 1
}

# glibc's tests, with a replacement for its test support (tools/native/glibc). Excluded are tests of glibc's internals
# (tcache, mtrace, mallopt, mallinfo), and tst-mallocalign1, which requires 16-byte alignment for requests up to 8 bytes.
suite_glibc() {
    fetch glibc || return
    for name in malloc calloc realloc reallocarray memalign posix_memalign valloc pvalloc obstack malloc-too-large \
        malloc-thread-exit malloc-thread-fail malloc-fork-deadlock mallocfork tcfree3; do
        build "$name" cc -w -O1 -fno-builtin -pthread -D_GNU_SOURCE -I"$here/tools/native/glibc" -include errno.h \
            -o "$work/$name" "$folder/malloc/tst-$name.c" && try "$name" "$work/$name"
    done
}

suite_mimalloc() {
    fetch mimalloc || return
    build stress cc -O2 -w -DUSE_STD_MALLOC -DNDEBUG -pthread -o "$work/stress" "$folder/test/test-stress.c" || return
    try 'stress 8 50 10' "$work/stress" 8 50 10
    try 'stress 32 10 20' "$work/stress" 32 10 20
}

# jemalloc's library stays loaded for its non-standard interface. malloc and its family come from the preloaded library.
suite_jemalloc() {
    fetch jemalloc || return
    tests='malloc aligned_alloc posix_memalign overflow'
    cd "$folder" || return
    if [ ! -x test/integration/overflow ]; then
        [ -x configure ] || autoconf >/dev/null 2>&1
        # shellcheck disable=SC2086 # several targets
        build all sh -c "./configure -q && make -j2 build_lib_shared $(printf 'test/integration/%s ' $tests)" || return
    fi
    for name in $tests; do
        LD_LIBRARY_PATH=$folder/lib try "$name" "test/integration/$name"
    done
    cd "$here" || return
}

suite_gperftools() {
    suite=gperftools
    fetch google-perftools || return
    # The results of gperftools' configure script on 64-bit Linux.
    printf '#define HAVE_%s 1\n' UNISTD_H FCNTL_H SYS_TYPES_H STDINT_H INTTYPES_H SYS_RESOURCE_H MMAP >"$work/config.h"
    for name in memalign realloc; do
        build "$name" c++ -O1 -w -fpermissive -DPERFTOOLS_DLL_DECL= -pthread -I"$work" -I"$folder/src" -o "$work/$name" "$folder/src/tests/${name}_unittest.cc" \
            "$folder/src/tests/testutil.cc" "$folder/src/base/logging.cc" && try "$name" "$work/$name"
    done
}

for suite in $suites; do
    case $suite in
    glibc | mimalloc | jemalloc | gperftools) "suite_$suite" ;;
    *) echo "no such suite: $suite" >&2; exit 2 ;;
    esac
done
exit $failed
