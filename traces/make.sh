#!/usr/bin/env bash
# Regenerates the recordings in this folder and their manifest: traces/make.sh HKSIM [NAME...], with a built hksim.
# Compares every recording with an independent count of calls, as described in tools/make.py. Skips programs that are
# missing, with a message. On Debian 12, all are available after: apt install python3 gcc g++ git nodejs ruby sqlite3
#     redis-server redis-tools mariadb-server mariadb-client postgresql
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: traces/make.sh HKSIM [NAME...]" >&2; exit 2; }
command -v cc >/dev/null || { echo "traces/make.sh needs a C compiler for its counter (apt install gcc)" >&2; exit 1; }
hksim=$(realpath "$1")
for python in /usr/bin/python3 python3; do
    # tomllib came with 3.11.
    "$python" -c 'import tomllib' 2>/dev/null && exec "$python" -B "$(dirname "$0")/tools/make.py" "$hksim" "${@:2}"
done
echo "traces/make.sh needs Python 3.11 or newer (apt install python3)" >&2
exit 1
