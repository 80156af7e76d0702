#!/usr/bin/env python3
"""Holds `record --touch pages` against the kernel: faults that `sim` predicts from a recording, and those that the program takes on the
real allocator, by perf. One table row for each program.

    benches/touch_pages.py HKSIM [NAME...]        # as root, or with kernel.perf_event_paranoid 1; programs that are missing are skipped

Each is recorded and run three times (RUNS); a figure is the median, followed by the range of the runs. Nothing is purged, as that depends on
time. Needs perf.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

RUNS = int(os.environ.get("RUNS", "3"))
# The native allocator's reservation (BASE_ADDRESS in crates/policy/src/layout.rs), and far more than it ever reaches.
HEAP = range(0x2000_0000_0000, 0x2000_0000_0000 + (1 << 38))
CC1PLUS = "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus"

PERL = """my %h; my @a; for my $i (1..60000) { $h{"key$i"} = { n => $i, s => "v" x ($i % 40) }; push @a, "line $i"; }
my $t = 0; $t += $h{$_}{n} for keys %h; my %c; $c{$_}++ for split /\\s+/, join("\\n", @a); print "$t ", scalar(keys %c), "\\n";"""
LUA = """local t = {} for i = 1, 60000 do t[i] = { name = "n" .. i, value = i * 2 } end
for i = 1, 60000, 2 do t[i] = nil end collectgarbage()
for i = 1, 30000 do t["k" .. i] = string.rep("x", i % 50) end print(#t)"""
PYTHON = """import json
d = [{"id": i, "name": "n%d" % i, "tags": ["a", "b", str(i)], "v": i / 3} for i in range(8000)]
for _ in range(3): d = json.loads(json.dumps(d))
print(len(d))"""
SQL = """create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) insert into t select i, 'row ' || i, i / 7.0 from n;
create index x on t(b); select count(*), sum(c) from t where b like 'row 1%'; delete from t where a % 3 = 0;"""
CPP = """#include <map>\n#include <regex>\n#include <string>\n#include <variant>\n#include <vector>
int main(int n, char **v) { std::map<std::string, std::vector<std::variant<int, std::string>>> m; m[v[0]].push_back(n);
return std::regex_match(v[0], std::regex("a(b|c)*d")); }"""


def programs(folder):
    """Name and command; inputs are made in `folder`."""

    def file(name, text):
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    words = "alpha beta gamma delta eps zeta".split()
    line = lambda n: " ".join(f"{words[(n * 7 + k) % 6]}{(n * 7919 + k * 104729) % 10007}" for k in range(7))
    text = file("words.txt", "\n".join(map(line, range(30000))))
    rows = file("rows.json", json.dumps([{"id": i, "k": f"v{i}", "l": list(range(i % 7))} for i in range(20000)]))
    commands = {
        "perl": ["perl", "-e", PERL],
        "lua": [shutil.which("lua") or "lua5.4", file("job.lua", LUA)],
        "python3": ["/usr/bin/python3", "-c", PYTHON],
        "xz": ["xz", "-6", "-k", "-c", "-T1", text],
        "sort": ["sort", "--parallel=1", text],
        "jq": ["jq", "-c", "map(select(.id % 3 == 0) | .l)", rows],
        "sqlite3": ["sqlite3", ":memory:", SQL],
    }
    if os.path.exists(CC1PLUS):
        source = file("job.ii", subprocess.run(["g++", "-E", "-std=c++17", file("job.cpp", CPP)], capture_output=True, text=True).stdout)
        commands["cc1plus"] = [CC1PLUS, "-fpreprocessed", "-quiet", "-std=c++17", source, "-o", "/dev/null"]
    return commands


def run(words, **more):
    environment = {**os.environ, "PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}
    return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, check=True, **more)


def predicted(hksim, folder, words):
    trace, result = os.path.join(folder, "t.hkt"), os.path.join(folder, "sim.json")
    run([hksim, "record", "--touch", "pages", "-o", trace, "--", *words])
    run([hksim, "sim", trace, "--huge", "never", "--purge", "none", "--format", "json", "-o", result])
    with open(result, encoding="utf-8") as file:
        report = json.load(file)
    os.remove(result)
    kinds = report["installs"]["by_kind"]
    return report["faults"], kinds["zero"] + kinds["cow"]


def measured(hksim, folder, words):
    data = os.path.join(folder, "perf.data")
    run(["perf", "record", "-q", "-e", "page-faults", "-c", "1", "-d", "-o", data, "--", hksim, "run", "--huge", "never", "--purge", "none", "--", *words])
    script = subprocess.run(["perf", "script", "-i", data, "-F", "addr"], capture_output=True, text=True, check=True)
    pages = [int(word, 16) for word in script.stdout.split() if int(word, 16) in HEAP]
    # A page that faults a second time was a zero page before.
    return len(pages), 2 * (len(pages) - len({page >> 12 for page in pages}))


def spread(values):
    middle = statistics.median_low(values)
    low, high = min(values), max(values)
    return f"{middle}" if low == high else f"{middle} ({low}-{high})"


def main():
    hksim, wanted = os.path.realpath(sys.argv[1]), sys.argv[2:]
    print("| program | measured | predicted | error | zero pages and copies, measured | predicted |")
    print("|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, words in programs(folder).items():
            if wanted and name not in wanted:
                continue
            if not shutil.which(words[0]):
                print(f"skipped: {name}: {words[0]} is not installed", file=sys.stderr)
                continue
            real = [measured(hksim, folder, words) for _ in range(RUNS)]
            told = [predicted(hksim, folder, words) for _ in range(RUNS)]
            faults, zeros = ([run[at] for run in real] for at in (0, 1))
            faults_told, zeros_told = ([run[at] for run in told] for at in (0, 1))
            error = statistics.median_low(faults_told) / statistics.median_low(faults) - 1
            cells = [name, spread(faults), spread(faults_told), f"{error:+.1%}", spread(zeros), spread(zeros_told)]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
