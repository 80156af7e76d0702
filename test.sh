#!/usr/bin/env bash
# Runs all checks: format, lints, docs, notebook, tests. Builds in target/ only.
#
#     ./test.sh [--strict | --quick]
#
# --quick runs what a change breaks first: format, lints, the tests inside the crates, and those of the architecture.
# A check that cannot run on this machine prints `skipped: reason`. With --strict a skip is a failure unless
# .ci/skips-allowed.txt allows its reason. As root, the script announces and installs missing Debian packages;
# HKSIM_NO_APT=1 prevents that.
set -euo pipefail
exec </dev/null
cd "$(dirname "$0")"
. .ci/packages.sh

case ${1:-} in
    '' | --strict | --quick) mode=${1:-} ;;
    *) echo "usage: ./test.sh [--strict | --quick]" >&2; exit 2 ;;
esac

target=${CARGO_TARGET_DIR:-target}
venv=$target/venv
log=$target/test.log
thp=/sys/kernel/mm/transparent_hugepage/enabled
pool=/proc/sys/vm/nr_hugepages
mdbook_version=0.4.52
rust_version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# Programs that are installed if missing: program, Debian package, and the checks that are skipped without it.
tools=(
    "git:git:recordings of git"
    "strace:strace:counts of system calls"
    "sqlite3:sqlite3:recordings of sqlite3"
    "ruby:ruby:ruby on the native allocator"
    "python3:python3:recordings of Python, the independent trace reader, the notebook"
    "ensurepip:python3-venv:notebooks, and readers of Parquet"
    "valgrind:valgrind:recordings of every access, traces of valgrind"
    "ltrace:ltrace:recordings by ltrace"
    "heaptrack:heaptrack:traces of heaptrack"
    "babeltrace2:babeltrace2:folders of LTTng"
    "lz4:lz4:files compressed by lz4 itself"
    "libjemalloc.so.2:libjemalloc2:replays on jemalloc"
    "libtcmalloc_minimal.so.4:libtcmalloc-minimal4:replays on gperftools"
    "libmimalloc.so.2:libmimalloc2.0:replays on mimalloc"
    "chromium:chromium:reports in a browser"
    "musl-gcc:musl-tools:recordings of programs of musl"
    "shellcheck:shellcheck:shellcheck of the scripts"
)

# Seconds: elapsed, and of the processor by this shell and all that it waited for. In a substitution, `times` would print
# the times of a new shell.
part_started() {
    read -r part_elapsed _ </proc/uptime
    times >"$target/test.times"
    part_processor=$(awk -F'[ms ]+' '{ n += $1 * 60 + $2 + $3 * 60 + $4 } END { print n }' "$target/test.times")
}

# Notes how long the part before took, and begins the next. A part without a name only ends the part before.
step() {
    local elapsed=${part_elapsed:-} processor=${part_processor:-}
    part_started
    if [ -n "${part:-}" ]; then
        awk -v a="$elapsed" -v b="$part_elapsed" -v c="$processor" -v d="$part_processor" -v name="$part" \
            'BEGIN { printf "%8.0f s %8.0f s  %s\n", b - a, d - c, name }' >>"$target/test.parts"
    fi
    part=$*
    [ -z "$part" ] || printf '\n==> %s\n' "$part"
}

# The word in brackets is the current mode.
thp_mode() { sed 's/.*\[\(.*\)\].*/\1/' "$thp" 2>/dev/null || true; }

# Restores the machine's settings, whichever way the tests ended.
restore() {
    if [ -n "$thp_before" ] && [ "$(thp_mode)" != "$thp_before" ]; then echo "$thp_before" >"$thp"; fi
    if [ -n "$pool_before" ] && [ "$(cat "$pool")" != "$pool_before" ]; then echo "$pool_before" >"$pool"; fi
}

# A Python with the packages that the notebooks and the independent trace reader need.
make_venv() {
    command -v python3 >/dev/null || return
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >/dev/null || return
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r notebooks/requirements.txt
}

# Installs the wheel: the command as the tests build it, and the module `hksim`. Checks both.
check_wheel() {
    step "python wheel"
    local built python
    built=$(realpath "$target")
    python=$built/venv/bin/python
    rm -rf "$built/wheels"
    (cd python && CARGO_TARGET_DIR=$built "$built/venv/bin/maturin" build --quiet --profile dev --compatibility linux \
        --auditwheel skip --compression-method stored --out "$built/wheels")
    "$python" -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps "$built"/wheels/hksim-*.whl
    "$python" python/tests/check.py "$built/venv/bin/hksim"
}

# If mdbook is not installed, builds it in target/tools, which takes about a minute of processor time. A test of testkit
# builds the book, or reports that it cannot.
make_mdbook() {
    command -v mdbook >/dev/null && return
    mkdir -p "$target/tools"
    PATH=$(realpath "$target/tools")/bin:$PATH
    command -v mdbook >/dev/null && return
    CARGO_PROFILE_DEV_DEBUG=0 timeout 600 cargo install --quiet --locked --no-default-features --debug --version "$mdbook_version" \
        --root "$target/tools" --target-dir "$target/tools/build" mdbook >"$target/mdbook.log" 2>&1 || true
    rm -rf "$target/tools/build"
}

install_tools() {
    step "tools"
    need_cargo
    need cc gcc
    for tool in "${tools[@]}"; do
        IFS=: read -r thing package purpose <<<"$tool"
        want "$thing" "$package" || echo "skipped: $purpose: $thing is not installed"
    done
}

lint() {
    if command -v shellcheck >/dev/null; then
        step "shellcheck"
        shellcheck -x try.sh test.sh .ci/run .ci/*.sh traces/make.sh notebooks/export.sh fuzz/run.sh benches/validate-grid.sh tools/kernel-matrix/run.sh tools/kernel-matrix/memory.sh tools/kernel-matrix/limits.sh tools/outside-programs/check.sh
        # In these scripts, shellcheck takes functions that only a trap or another function calls for unreachable.
        shellcheck -x -e SC2317,SC2086 tools/native-programs.sh tools/native-tests.sh tools/native-limits.sh tools/native-races.sh
    fi

    step "cargo fmt --check"
    cargo fmt --all --check

    step "cargo clippy"
    cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
    cargo clippy --quiet --locked -p hksim-record-preload --features operators -- -D warnings

    step "cargo doc"
    # With clippy as the compiler, and with its arguments, rustdoc reads the crates that clippy has checked just now.
    local clippy
    clippy=$(rustc --print sysroot)/bin/clippy-driver
    [ -x "$clippy" ] || clippy=
    RUSTC_WORKSPACE_WRAPPER=$clippy CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__ RUSTDOCFLAGS="-D warnings" \
        cargo doc --quiet --locked --workspace --no-deps

    step "library crates, packaged and used from outside"
    tools/outside-programs/check.sh
}

# testkit also tests licences and duplicates, but not known advisories.
check_dependencies() {
    step "cargo deny"
    if ! cargo deny --version >/dev/null 2>&1; then
        echo "skipped: licences and advisories by cargo-deny: it is not installed (cargo install --locked cargo-deny)"
        return
    fi
    cargo deny --locked --offline check --hide-inclusion-graph licenses bans sources
    if timeout 120 cargo deny fetch db >"$target/deny.log" 2>&1; then
        cargo deny --locked check --hide-inclusion-graph advisories
    else
        echo "skipped: advisories: the database cannot be fetched: $(grep -m1 -i 'fatal\|error' "$target/deny.log")"
    fi
}

# rust-version can be checked only with the oldest compiler itself.
check_oldest_rust() {
    step "cargo +$rust_version check"
    if RUSTUP_AUTO_INSTALL=0 cargo "+$rust_version" --version >/dev/null 2>&1; then
        # C libraries are built, too, and nothing runs them.
        CFLAGS=-O0 cargo "+$rust_version" check --quiet --locked --workspace --target-dir "$target/oldest-rust"
    else
        echo "skipped: Rust $rust_version: not installed (rustup toolchain install $rust_version --profile minimal)"
    fi
}

check_documents() {
    step "mdbook"
    make_mdbook

    if command -v python3 >/dev/null; then
        step "docs/lab/kernel-matrix.md and memory-kernels.md agree with their results"
        python3 tools/kernel-matrix/matrix.py check
        python3 tools/kernel-matrix/memory.py check
    fi

    step "Python packages"
    if make_venv; then
        check_wheel
        step "notebooks"
        "$venv/bin/python" notebooks/check.py "$target/notebooks"
        HKSIM_PYTHON=$(realpath -s "$venv/bin/python")
        export HKSIM_PYTHON
    else
        echo "skipped: the Python wheel and notebooks: notebooks/requirements.txt cannot be installed here (needs python3, venv and pip)"
    fi
}

everything() {
    thp_before=$(thp_mode)
    pool_before=$(cat "$pool" 2>/dev/null || true)
    trap restore EXIT
    # A fresh clone is built once: without what only a second build could use, and without lines in backtraces. A failed
    # assertion names its line anyway.
    [ -d "$target/debug/incremental" ] || export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
    install_tools
    lint
    check_dependencies
    check_oldest_rust
    check_documents
    step "cargo test: build"
    cargo test --locked --workspace --no-fail-fast --no-run
    step "cargo test"
    # Builds leave free memory in small pieces, and many tests need huge pages. Without the right to do this, they have less.
    { echo 1 >/proc/sys/vm/compact_memory; } 2>/dev/null || true
    local passed=0
    .ci/tests.sh "$target/test-programs" || passed=$?
    step
    return "$passed"
}

quick() {
    step "cargo fmt --check"
    cargo fmt --all --check
    step "cargo clippy"
    cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
    step "tests inside the crates"
    cargo test --quiet --locked --workspace --lib --bins
    step "architecture"
    cargo test --quiet --locked -p hksim-testkit --test project -- architecture command_files dependencies
    step
}

mkdir -p "$target"
rm -f "$target/test.parts"
if [ "$mode" = --quick ]; then
    quick
    cat "$target/test.parts"
    exit
fi
announce cc:gcc "${tools[@]%:*}"
everything 2>&1 | tee "$log"

printf '\n==> parts: elapsed, processor time\n'
cat "$target/test.parts"

printf '\n==> skipped\n'
.ci/skips.sh "$log" || [ -z "$mode" ]
