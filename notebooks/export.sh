#!/usr/bin/env bash
# Writes the data that the notebooks read: notebooks/export.sh HKSIM, where HKSIM is a built hksim.
set -euo pipefail
hksim=$(realpath "$1")
cd "$(dirname "$0")/.."
mkdir -p notebooks/data

"$hksim" sweep --superslab 1M,2M --huge --format json -o notebooks/data/built-in.json
"$hksim" sweep traces/python-json.hkt --superslab 64K,256K,2M --huge never,thp --format json -o notebooks/data/python-json.json
