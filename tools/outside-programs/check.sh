#!/usr/bin/env bash
# Tests the library crates in the form that users get: packaged, unpacked outside the workspace, and used by three small
# programs.
#
#     tools/outside-programs/check.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
folder=$target/outside-programs
crates=(hksim-policy hksim-text hksim-linux-mm hksim-linux-probe hksim-timing hksim-inspect hksim-container
    hksim-recording-files hksim-call-sites hksim-trace hksim-engine hksim-designs hksim-native hksim-sim hksim-conformance
    hksim-output-files hksim-cost-model hksim-memory-trace hksim-memory-sim hksim-memory-record
    hksim-time-model hksim-explore hksim-replay hksim-attribution hksim-budget hksim-validate hksim-results hksim-reports)
# The expected output. The kernel's figures: 2^15 - 1 pages in 15 vectors; with advice, those of 2 MiB and more are huge.
kernel_expected="5.15 advised false: 32767 faults, 0 huge pages
5.15 advised true: 574 faults, 32 huge pages
6.18 advised false: 32767 faults, 0 huge pages
6.18 advised true: 574 faults, 32 huge pages"

rm -rf "$folder/packages"
mkdir -p "$folder/packages"
selected=("${crates[@]/#/--package=}")
cargo package --quiet --allow-dirty --no-verify --target-dir "$folder/target" "${selected[@]}"
# `m`: the files' times in an archive are always the same, so cargo would take those of another version for unchanged.
for crate in "${crates[@]}"; do
    archives=("$folder/target/package/$crate"-[0-9]*.crate)
    tar -xzmf "${archives[0]}" -C "$folder/packages"
    mv "$folder/packages/$(basename "${archives[0]}" .crate)" "$folder/packages/$crate"
done
cp -r tools/outside-programs/{kernel,reader,study,design} "$folder/"
# The packages name each other by version, as those of a registry do. Other crates have the versions and the profile of
# this workspace, so that they are not built again.
{
    printf '[workspace]\nresolver = "3"\nmembers = ["kernel", "reader", "study", "design"]\n\n[patch.crates-io]\n'
    for crate in "${crates[@]}"; do printf '%s = { path = "packages/%s" }\n' "$crate" "$crate"; done
    awk '/^\[/ { copied = /^\[profile\.dev/ && !/hksim-/ } copied' Cargo.toml
} >"$folder/Cargo.toml"
cp Cargo.lock "$folder/"

run() { cargo run --quiet --manifest-path "$folder/$1/Cargo.toml" --target-dir "$target" -- "${@:2}"; }

kernel=$(run kernel)
[ "$kernel" = "$kernel_expected" ] || { printf 'the kernel model printed:\n%s\nexpected:\n%s\n' "$kernel" "$kernel_expected" >&2; exit 1; }
reader=$(run reader traces/python-json.hkt)
[[ $reader == "411072 events, "* ]] || { echo "the reader printed: $reader" >&2; exit 1; }
echo "$reader"
# Eight designs, one of them validated; it may be skipped here, but not fail.
study=$(run study traces/sqlite-memory.hkt "$folder/study-of-sqlite")
[[ $study == "8 designs; "* && $study != *FAILED* ]] || { echo "the study printed: $study" >&2; exit 1; }
grep -q '<svg' "$folder/study-of-sqlite/report.html" || { echo "the study's report has no figure" >&2; exit 1; }
echo "$study"
# An allocator of one's own: predicted, replayed and compared.
design=$(run design)
[[ $design == *"every measured figure equals its prediction" ]] || { echo "the design printed: $design" >&2; exit 1; }
echo "$design"
echo "packaged, unpacked and used: ${crates[*]}"
