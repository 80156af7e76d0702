#!/bin/sh
# Runs the given fuzz targets (default: all), AT_ONCE of them in parallel. Stops with an error if one crashes.
#
#     SECONDS_EACH=600 AT_ONCE=2 fuzz/run.sh [TARGET...]
#
# Needs a nightly toolchain and cargo-fuzz (cargo install cargo-fuzz).
set -eu
cd "$(dirname "$0")"
seconds=${SECONDS_EACH:-600}
if [ $# -eq 0 ]; then
    for target in fuzz_targets/*.rs; do set -- "$@" "$(basename "$target" .rs)"; done
fi
cargo +nightly fuzz build --fuzz-dir .
status=0
printf '%s\n' "$@" | xargs -P "${AT_ONCE:-2}" -I{} sh -c "
    mkdir -p corpus/{} artifacts/{}
    log=\$(mktemp)
    if cargo +nightly fuzz run --fuzz-dir . {} -- -max_total_time=$seconds -max_len=16384 -rss_limit_mb=1024 -timeout=20 >\"\$log\" 2>&1
    then echo \"{}: no crash; \$(grep -a '^Done' \"\$log\" || tail -n 1 \"\$log\")\"
    else echo \"{}: CRASHED\"; tail -n 30 \"\$log\"; exit 255
    fi
    rm -f \"\$log\"" || status=1
rm -rf /dev/shm/hksim-fuzz-*
exit $status
