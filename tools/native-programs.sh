#!/bin/sh
# Runs real programs on the native allocator under several policies. Each must behave as it does without the allocator.
#
#     tools/native-programs.sh [HKSIM] [PROGRAM...]
#
# HKSIM is the binary (default: hksim). PROGRAM: python sqlite cxx git redis ruby node (default: all). Prints one line per
# program and policy: ok, FAILED, or skipped with the reason. After ok follows the number of pointers whose alignment was
# checked by tools/native/alignment.c, which is interposed between program and allocator. Exits with status 1 if a program
# failed.
set -u

hksim=${1:-hksim}
[ $# -gt 0 ] && shift
programs=${*:-python sqlite cxx git redis ruby node}
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HKSIM_ALIGNMENT_LOG="$work/looked-at"
alignment=
if command -v cc >/dev/null 2>&1; then
    alignment=$work/alignment.so
    cc -O2 -shared -fPIC -o "$alignment" "$here/tools/native/alignment.c" -ldl || exit 2
else
    echo 'skipped: the alignment of pointers: no C compiler (cc) is installed'
fi

policies='
--preset default
--huge thp --superslab 4M --purge-delay 0
--huge hugetlb --cache 0
--meta sidecar --superslab 1M --slab 32K
'

has() {
    command -v "$1" >/dev/null 2>&1 || { echo "skipped: $program: $1 is not installed"; return 1; }
}

# Removes the parts of a test's output that vary: times, seeds, addresses, process ids.
without_times() {
    sed -e 's/[0-9][0-9.]* *\(ms\|sec\|seconds\|min\|s\)\b//g' -e '/^Using random seed/d' -e '/load avg/d' -e '/^[0-9:. ]*\[/d' \
        -e '/^Total duration/d' -e '/^== /d'
}

run_python() {
    has python3 || return 0
    python3 -c 'import test.test_json' 2>/dev/null || { echo 'skipped: python: its own test modules are not installed'; return 0; }
    # Without Python's pools every object is a block. Without fixed seeds the order of tests and hashes would be random.
    script='PYTHONMALLOC=malloc PYTHONHASHSEED=1 exec python3 -m test -j1 --randseed 7 test_json test_re test_threading test_subprocess'
    compare without_times sh -c "$script"
}

run_sqlite() {
    has sqlite3 || return 0
    cat >"$work/in.sql" <<'SQL'
CREATE TABLE t(id INTEGER PRIMARY KEY, word TEXT, n REAL);
WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 200000)
  INSERT INTO t SELECT i, hex(i * 7919 % 65536) || substr('abcdefghijklmnopqrstuvwxyz', i % 20, 9), i % 977 FROM c;
CREATE INDEX words ON t(word);
SELECT count(DISTINCT word), sum(n), max(word) FROM t;
SELECT n, count(*), group_concat(substr(word, 1, 3)) FROM t WHERE id % 211 = 0 GROUP BY n ORDER BY n LIMIT 50;
DELETE FROM t WHERE id % 3 = 0;
VACUUM;
SELECT count(*), sum(length(word)) FROM t;
SQL
    compare cat sh -c "exec sqlite3 :memory: <'$work/in.sql'"
}

run_cxx() {
    has g++ || return 0
    {
        echo '#include <algorithm>'
        echo '#include <map>'
        echo '#include <regex>'
        echo '#include <sstream>'
        echo '#include <string>'
        echo '#include <vector>'
        i=0
        while [ $i -lt 150 ]; do
            echo "template <int N> struct S$i { std::map<std::string, std::vector<int>> m; int f(int x) { std::ostringstream o; o << x * N; m[o.str()].push_back(x); std::sort(m[o.str()].begin(), m[o.str()].end()); return (int)m.size(); } };"
            echo "int g$i(int x) { S$i<$i> s; return s.f(x) + (int)std::regex_match(std::to_string(x), std::regex(\"[0-9]+\")); }"
            i=$((i + 1))
        done
    } >"$work/large.cc"
    compare cat sh -c "cd '$work' && g++ -O2 -S -o - large.cc | cksum"
}

run_git() {
    has git || return 0
    git -C "$here" rev-parse HEAD >/dev/null 2>&1 || { echo 'skipped: git: this folder is not a clone'; return 0; }
    git clone -q --bare --no-local "$here" "$work/repository" 2>/dev/null || { echo 'skipped: git: cannot clone'; return 0; }
    compare cat sh -c "
        rm -rf '$work/copy' && cp -r '$work/repository' '$work/copy' && cd '$work/copy' &&
        git -c gc.auto=0 -c pack.threads=2 gc -q --aggressive --prune=now && git fsck --full 2>&1 | sort &&
        git rev-list --objects --all | cksum && git count-objects"
}

run_redis() {
    has redis-server && has redis-benchmark && has redis-cli || return 0
    cat >"$work/redis.sh" <<SH
cd '$work' && rm -f dump.rdb s
redis-server --port 0 --unixsocket '$work/s' --save '' --logfile '$work/log' --enable-debug-command yes &
n=0; until redis-cli -s s ping >/dev/null 2>&1 || [ \$n -gt 100 ]; do sleep 0.1; n=\$((n + 1)); done
redis-benchmark -s s -n 20000 -c 20 -r 5000 -q -t get,incr,mset,ping >/dev/null 2>&1 || echo benchmark failed
redis-cli -s s flushall
i=0; while [ \$i -lt 3000 ]; do echo "set key:\$i \$i-\$i-\$i"; echo "rpush list:\$((i % 50)) \$i"; i=\$((i + 1)); done | redis-cli -s s >/dev/null
redis-cli -s s dbsize
redis-cli -s s bgsave >/dev/null
n=0; until redis-cli -s s info persistence | grep -q rdb_bgsave_in_progress:0 || [ \$n -gt 100 ]; do sleep 0.1; n=\$((n + 1)); done
redis-cli -s s info persistence | grep -a rdb_last_bgsave_status
redis-cli -s s debug digest
redis-cli -s s shutdown nosave
wait
SH
    compare cat sh "$work/redis.sh"
}

run_ruby() {
    has ruby || return 0
    # shellcheck disable=SC2016 # Ruby's own
    compare cat ruby -e '
        h = Hash.new { |m, k| m[k] = [] }
        200_000.times { |i| h[(i * 7919 % 5003).to_s] << "v" * (i % 40) }
        threads = 4.times.map { |t| Thread.new { (1..20_000).map { |i| (i * t).to_s.reverse }.join.sum } }
        GC.start
        puts h.size, h.values.sum { |v| v.join.size }, threads.map(&:value).inspect
        puts `echo a child`'
}

run_node() {
    has node || return 0
    compare cat node -e '
        const zlib = require("zlib"), crypto = require("crypto");
        const m = new Map(); let text = "";
        for (let i = 0; i < 200000; i++) { m.set(i * 7919 % 5003, "v".repeat(i % 40)); if (i % 50 == 0) text += JSON.stringify({ i, a: [i, i * 2] }); }
        const packed = zlib.gzipSync(text, { level: 9 });
        console.log(m.size, zlib.gunzipSync(packed).toString() === text, crypto.createHash("sha256").update(text).digest("hex"));
        console.log(require("child_process").execSync("echo a child").toString());'
}

# A shell script that runs its arguments as a command, with the check of alignment interposed.
# shellcheck disable=SC2016 # expanded in the program's own environment
with_looks='LD_PRELOAD="$HKSIM_ALIGNMENT${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@"'

# compare FILTER COMMAND...: runs a command without and with the allocator, and compares the filtered outputs.
compare() {
    filter=$1
    shift
    "$@" >"$work/expected.raw" 2>"$work/expected.err"
    expected_status=$?
    "$filter" <"$work/expected.raw" >"$work/expected"
    printf '%s\n' "$policies" | while read -r policy; do
        [ -n "$policy" ] || continue
        : >"$HKSIM_ALIGNMENT_LOG"
        # shellcheck disable=SC2086 # a policy is several words
        if [ -n "$alignment" ]; then
            HKSIM_ALIGNMENT=$alignment "$hksim" run $policy -- sh -c "$with_looks" sh "$@" >"$work/got.raw" 2>"$work/got.err"
        else
            "$hksim" run $policy -- "$@" >"$work/got.raw" 2>"$work/got.err"
        fi
        status=$?
        "$filter" <"$work/got.raw" >"$work/got"
        looked_at=$(awk '{ n += $1 } END { print n + 0 }' "$HKSIM_ALIGNMENT_LOG")
        if [ $status -eq $expected_status ] && cmp -s "$work/expected" "$work/got" && ! grep -q '^hksim: \|^alignment: ' "$work/got.err" &&
            { [ -z "$alignment" ] || [ "$looked_at" -gt 0 ]; }; then
            echo "ok: $program under $policy: $looked_at pointers"
        else
            echo "FAILED: $program under $policy: status $status, without $expected_status, $looked_at pointers"
            diff "$work/expected" "$work/got" | head -5
            head -3 "$work/got.err"
            : >"$work/failed"
        fi
    done
}

for program in $programs; do
    case $program in
    python | sqlite | cxx | git | redis | ruby | node) "run_$program" ;;
    *) echo "no such program: $program" >&2; exit 2 ;;
    esac
done
[ ! -e "$work/failed" ]
