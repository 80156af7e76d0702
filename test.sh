#!/usr/bin/env bash
# Everything that must hold: format, lints, docs, notebook, tests. Builds in target/ only.
# What a test cannot do on this machine it says as `skipped: reason`.
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")"
. .ci/packages.sh

target=${CARGO_TARGET_DIR:-target}
venv=$target/venv
thp=/sys/kernel/mm/transparent_hugepage/enabled
pool=/proc/sys/vm/nr_hugepages

step() { printf '\n==> %s\n' "$*"; }

# The word in brackets is the mode in force.
thp_mode() { sed 's/.*\[\(.*\)\].*/\1/' "$thp" 2>/dev/null || true; }

# Puts the machine back, whichever way the tests ended.
restore() {
    if [ -n "$thp_before" ] && [ "$(thp_mode)" != "$thp_before" ]; then echo "$thp_before" >"$thp"; fi
    if [ -n "$pool_before" ] && [ "$(cat "$pool")" != "$pool_before" ]; then echo "$pool_before" >"$pool"; fi
}

# A Python with what the notebooks and the independent trace reader need.
make_venv() {
    command -v python3 >/dev/null || return
    python3 -c 'import ensurepip' 2>/dev/null || install python3-venv
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >/dev/null || return
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r notebooks/requirements.txt
}

thp_before=$(thp_mode)
pool_before=$(cat "$pool" 2>/dev/null || true)
trap restore EXIT

step "tools"
need_cargo
need cc gcc
want git git || echo "skipped: recordings of git: it is not installed"
want strace strace || echo "skipped: counts of system calls: strace is not installed"
want sqlite3 sqlite3 || echo "skipped: recordings of sqlite3: it is not installed"
want python3 python3 || echo "skipped: recordings of Python, the independent trace reader, the notebook: no python3"
want valgrind valgrind || echo "skipped: recordings of every access, traces of valgrind: it is not installed"
want ltrace ltrace || echo "skipped: recordings by ltrace: it is not installed"
want heaptrack heaptrack || echo "skipped: traces of heaptrack: it is not installed"
for library in libjemalloc.so.2:libjemalloc2 libtcmalloc_minimal.so.4:libtcmalloc-minimal4 libmimalloc.so.2:libmimalloc2.0; do
    ldconfig -p 2>/dev/null | grep -qF "${library%:*} " || install "${library#*:}"
done
if want shellcheck shellcheck; then
    shellcheck -x try.sh test.sh .ci/run .ci/packages.sh traces/make.sh notebooks/export.sh fuzz/run.sh benches/validate-grid.sh tools/kernel-matrix/run.sh
    # Functions that a trap or another function calls look unreachable.
    shellcheck -x -e SC2317,SC2086 tools/native-programs.sh tools/native-tests.sh tools/native-limits.sh tools/native-races.sh
else
    echo "skipped: shellcheck of the scripts: it is not installed"
fi

step "cargo fmt --check"
cargo fmt --all --check

step "cargo clippy"
cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
cargo clippy --quiet --locked -p hksim-record-preload --features operators -- -D warnings

step "cargo doc"
RUSTDOCFLAGS="-D warnings" cargo doc --quiet --locked --workspace --no-deps

if command -v python3 >/dev/null; then
    step "docs/kernel-matrix.md is what its results give"
    python3 tools/kernel-matrix/matrix.py check
fi

step "notebooks"
if make_venv; then
    "$venv/bin/python" notebooks/check.py "$target/notebooks"
    HKSIM_PYTHON=$(realpath -s "$venv/bin/python")
    export HKSIM_PYTHON
else
    echo "skipped: notebooks: notebooks/requirements.txt cannot be installed here (needs python3, venv and pip)"
fi

step "cargo test"
# Tests that pass show what they printed: what they skipped, and why.
cargo test --locked --workspace -- --show-output
