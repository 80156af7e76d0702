"""The programs of the grid: how to prepare their inputs, and how to run them.

`{work}` in a command is the folder of inputs and compiled programs. A program whose files or packages are missing is skipped.
"""

import dataclasses
import glob
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

SOURCES = pathlib.Path(__file__).resolve().parent / "programs"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"


@dataclasses.dataclass
class Program:
    """One program. `child` names the program of the process to compare, if it is not the command's own. What a program with
    `by_address` does depends on its addresses: it hashes pointers. `gap` is what a prediction
    cannot cover: a failed row must name it."""

    name: str
    command: list
    exact: bool = True
    needs: list = dataclasses.field(default_factory=list)
    child: str = ""
    by_address: bool = False
    gap: str = ""

    def missing(self, work):
        """What is not installed, or an empty text."""
        words = [self.command[0], *self.needs]
        paths = [word.format(work=work) for word in words]
        absent = [path for path in paths if not (shutil.which(path) or os.path.exists(path))]
        return ", ".join(absent)


def cause(name):
    """Why rows of this program fail, in sentences."""
    return next((words for start, words in CAUSES.items() if name.startswith(start)), "not known yet.")


def compiler_proper():
    found = subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "cc1plus"


def shell(script):
    return ["/bin/sh", "-c", script]


PYTHON = os.path.realpath("/usr/bin/python3") if os.path.exists("/usr/bin/python3") else os.path.realpath(sys.executable)
# These allocators return memory after times of their own.
NO_DECAY = ["MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1", "MIMALLOC_ALLOW_DECOMMIT=0", "MIMALLOC_PAGE_RESET=0"]
# What the model lacks, in the words of `validate`.
GAPS = {
    "userfaultfd": "userfaultfd are not simulated",
    "pageout": "madvise(21) are not simulated",
    "named": "switched huge pages on for itself",
    "copies": "without an exception",
    "reads": "made other calls than the recording",
}
TLB = (
    "after a fork, the TLB of this virtual machine keeps outdated read-only entries for the small pages of a huge page, because the "
    "hypervisor probably backs the machine with small pages. Each raises one more fault, at which nothing changes. Tested on one huge page: fork, "
    "read all pages, write all pages: 497 to 512 faults; 1 to 5 if the program changes to the other processor before it writes. Page "
    "sets, huge pages and resident memory are equal; the number of faults differs from run to run."
)
ZEROS = (
    "huge pages and folios that a populate filled with zeros are split later (MADV_COLD). The kernel then frees the pages of zeros (R10), and later "
    "writes to them fault again. The recording shows no access to pages that are present, so the prediction lacks these faults."
)
# Why rows fail, by name of the program or its beginning.
CAUSES = {
    "c-fork-child": TLB,
    "c-generations": TLB,
    "random-fork": TLB,
    "random-": ZEROS,
    "postgres": "the database changes with each run, and one fault with it: two of these runs and all of eight later recordings had 7 574 faults.",
    "c-race": "two threads touch the same pages at once, and both fault. The model has no time: the second touch finds the page present.",
    "go-": "the collector's work depends on the time that its threads get. Five runs had 3 638 to 4 531 traps with folios of 64 KiB, five "
    "earlier ones 1 543 to 2 905; the prediction repeats the one recorded run.",
    "sort-2": "probably, which of its threads ends first decides about 4 KiB of the heap's end; the recorded run had 4 KiB less than all five runs.",
    "rustc": "the measured peak is an estimate, which takes the memory of files to be as it was at the exit. rustc has 97 MiB of files "
    "resident at its peak and 68 MiB at its exit: it unmaps its libraries' metadata before. Its threads also differ from run to run.",
    "mariadb": "its threads differ from run to run; the recorded run had the lowest peak of six.",
    "cc": "it hashes pointers. A recording at random addresses is one sample of what it does.",
    "python": "it hashes pointers, and places memory by its address. A recording at random addresses is one sample of what it does.",
    "jemalloc": "probably because its mappings are aligned, at other addresses it maps other sizes. A recording at random addresses is one sample.",
    "tcmalloc": "probably because at random addresses its heap begins elsewhere within one of its own pages, it takes other amounts of memory.",
}
JOB = ["-S", "{work}/job.py"]


def deterministic():
    work = [
        Program("sqlite3", ["sqlite3", ":memory:", ".read {work}/rows.sql"]),
        Program("xz", ["xz", "-6", "-T1", "-k", "-c", "{work}/text"]),
        Program("xz-d", ["xz", "-d", "-c", "{work}/text.xz"], needs=["{work}/text.xz"]),
        Program("cc1plus", [compiler_proper(), "-quiet", "-O1", "{work}/code.cc", "-o", "/dev/null"], by_address=True),
        Program("cc1", [compiler_proper().removesuffix("plus"), "-quiet", "-O2", "{work}/code.c", "-o", "/dev/null"], by_address=True),
        Program("ld", ["ld", "-r", "-o", "/dev/null", "{work}/code.o"], needs=["{work}/code.o"]),
        Program("lua", ["lua5.4", "{work}/job.lua"]),
        Program("perl", ["env", "PERL_HASH_SEED=0", "perl", "{work}/job.pl"]),
        Program("perl-fork", ["env", "PERL_HASH_SEED=0", "perl", "{work}/fork.pl"]),
        Program("jq", ["jq", "group_by(.key) | map(length)", "{work}/rows.json"]),
        Program("busybox-sort", ["busybox", "sort", "{work}/text"]),
        Program("busybox-awk", ["busybox", "awk", "{{ n[$1] = n[$1] $2 }} END {{ for (k in n) m++; print m }}", "{work}/text"]),
        Program("sort", ["sort", "--parallel=1", "{work}/text"]),
        Program("gawk", ["gawk", "{{ n[$1] = n[$1] $2 }} END {{ print length(n) }}", "{work}/text"]),
        Program("bc", ["bc", "-q", "{work}/job.bc"]),
        Program("python-malloc", ["env", "PYTHONMALLOC=malloc", "PYTHONHASHSEED=0", PYTHON, *JOB], by_address=True),
        Program("python", ["env", "PYTHONHASHSEED=0", PYTHON, *JOB], by_address=True),
        Program(
            "python-hugetlb",
            ["env", "PYTHONMALLOC=malloc", "PYTHONHASHSEED=0", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", PYTHON, *JOB], by_address=True,
            gap=GAPS["reads"]),
        Program("python-fork", ["env", "PYTHONHASHSEED=0", PYTHON, "-S", "{work}/fork.py"], by_address=True),
        Program("jemalloc-linked", ["env", *NO_DECAY, "{work}/blocks-jemalloc", "3"], by_address=True),
        Program("rust", ["{work}/rust-job"], needs=["{work}/rust-job"]),
        Program("zstd", ["zstd", "-q", "--single-thread", "--no-asyncio", "-12", "-k", "-c", "{work}/text"]),
        Program("gzip", ["gzip", "-9", "-k", "-c", "{work}/text"]),
        Program("bzip2", ["bzip2", "-9", "-k", "-c", "{work}/text"]),
        Program("ruby", ["ruby", "--disable-gems", "{work}/job.rb"], by_address=True),
        Program("php", ["php", "-n", "{work}/job.php"]),
        Program("ffmpeg", ["ffmpeg", *"-v error -threads 1 -filter_threads 1 -f lavfi -i testsrc=s=320x240:d=2".split(),
                           *"-c:v mpeg4 -threads 1 -f null -".split()]),
        Program("openssl", ["openssl", "enc", "-aes-256-cbc", "-K", "00", "-iv", "00", "-in", "{work}/text", "-out", "/dev/null"]),
        Program("git", ["git", "-C", "{work}/repository", "log", "--stat", "--oneline"], needs=["{work}/repository"]),
        Program("tar", ["tar", "-cf", "-", "-C", "{work}", "text"]),
        Program("grep", ["grep", "-c", "-E", "(a.*b){{2}}", "{work}/text"]),
        Program("static", ["{work}/blocks-static", "3"]),
    ]
    for name, library in [("jemalloc", "libjemalloc.so.2"), ("mimalloc", "libmimalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4")]:
        path = f"{LIBRARIES}/{library}"
        # mimalloc draws random numbers: it chooses other pages in each run.
        command = ["env", *NO_DECAY, f"LD_PRELOAD={path}", "{work}/blocks", "3"]
        work.append(Program(f"{name}-preloaded", command, exact=name != "mimalloc", needs=[path], by_address=True))
    cases = {
        "mappings": "remap fixed reserve unmap populate lock advice refused pageout brk bss stack growsdown protect named zero code",
        "processes": "fork-child fork-parent generations vfork spawn exec threads",
        "special": "handler probes memfd segment copies userfaultfd hugetlb",
    }
    for source, names in cases.items():
        work += [Program(f"c-{name}", [f"{{work}}/{source}", name], gap=GAPS.get(name, "")) for name in names.split()]
    for seed in range(1, 7):
        work.append(Program(f"random-{seed}", ["{work}/random", str(seed), "700"]))
    for seed in range(7, 11):
        work.append(Program(f"random-fork-{seed}", ["{work}/random", str(seed), "500", "fork"]))
    return work


def statistical():
    def server(name, command, child, needs):
        return Program(name, command, exact=False, child=child, needs=needs)

    redis = (
        "redis-server --save '' --port 7391 --disable-thp no > {work}/redis.log & sleep 0.7; "
        "redis-benchmark -q -p 7391 -n 60000 -r 20000 -d 400 -t set,lpush,get > /dev/null; redis-cli -p 7391 shutdown nosave; wait"
    )
    postgres = "{work}/postgres.sh {work}"
    mariadb = "{work}/mariadb.sh {work}"
    return [
        Program("node", ["node", "{work}/job.js"], exact=False),
        Program("java", ["java", "-cp", "{work}", "Job"], exact=False, needs=["{work}/Job.class"]),
        Program("go-1", ["env", "GOMAXPROCS=1", "GOGC=off", "{work}/go-job"], exact=False, needs=["{work}/go-job"]),
        Program("go-2", ["env", "GOMAXPROCS=2", "{work}/go-job"], exact=False, needs=["{work}/go-job"]),
        Program("sort-2", ["sort", "--parallel=2", "-S", "64M", "{work}/text-large"], exact=False),
        Program("xz-T2", ["xz", "-2", "-T2", "-k", "-c", "{work}/text-large"], exact=False),
        Program("rustc", ["rustc", "-Ccodegen-units=1", "-O", "{work}/job.rs", "-o", "{work}/rustc-output"], exact=False),
        Program("guile", ["guile", "--no-auto-compile", "{work}/job.scm"], exact=False),
        Program("convert", ["env", "OMP_NUM_THREADS=1", *"convert-im6.q16 -size 800x600 plasma:red-blue -blur 0x3 null:".split()], exact=False,
                needs=["convert-im6.q16"]),
        Program("busybox-sh", ["busybox", "sh", "{work}/job.sh"], exact=False),
        Program("bash-loop", ["bash", "{work}/job.sh"], exact=False),
        Program("c-race", ["{work}/processes", "race"], exact=False),
        server("redis", shell(redis), "redis-server", ["redis-server", "redis-benchmark"]),
        server("postgres", shell(postgres), "postgres", ["postgres", "initdb"]),
        server("mariadb", shell(mariadb), "mariadbd", ["mariadbd", "mariadb-install-db"]),
    ]


def prepare(work, seed):
    """Writes the inputs and compiles the programs. What cannot be made is missing later."""
    draw = random.Random(seed)
    (work / "text").write_text(text(draw, 60_000), encoding="ascii")
    (work / "text-large").write_text(text(draw, 300_000), encoding="ascii")
    rows = [{"key": draw.randrange(500), "name": word(draw), "value": draw.random()} for _ in range(20_000)]
    (work / "rows.json").write_text(json.dumps(rows), encoding="ascii")
    lines = ["create table t (a integer, b text, c real);", "begin;"]
    lines += [f"insert into t values ({row['key']}, '{row['name']}', {row['value']});" for row in rows]
    lines += ["commit;", "create index i on t (b);", "select count(*), sum(c) from t group by a % 7;"]
    (work / "rows.sql").write_text("\n".join(lines) + "\n", encoding="ascii")
    for source in (SOURCES.parent / "jobs").iterdir():
        shutil.copy(source, work)
    (work / "job.sh").chmod(0o755)
    (work / "job.bc").write_text("scale=3000\n4*a(1)\ne(1)\nquit\n", encoding="ascii")
    methods = "".join(f"int f{n}(int x) {{ int y[{n + 1}]; y[{n}] = x; return y[{n}] * {n} + x % {n + 3}; }}\n" for n in range(3000))
    (work / "code.c").write_text(methods, encoding="ascii")
    templates = "".join(f"template int sum<std::vector<std::map<int, A<{n}>>>>();\n" for n in range(40))
    head = "#include <map>\n#include <vector>\ntemplate <int N> struct A { int x[N + 1]; };\n"
    body = "template <class T> int sum() { T t(3); int n = 0; for (auto &m : t) for (auto &p : m) n += p.second.x[0]; return n; }\n"
    (work / "code-raw.cc").write_text(head + body + templates, encoding="ascii")
    compile_all(work)


def word(draw):
    return "".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.randrange(3, 12)))


def text(draw, lines):
    words = [word(draw) for _ in range(3000)]
    return "".join(f"{draw.choice(words)} {word(draw)} {draw.randrange(10**9)} {draw.choice(words)}\n" for _ in range(lines))


def compile_all(work):
    def make(*command, **options):
        if shutil.which(command[0]):
            subprocess.run(command, cwd=work, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)

    for source in SOURCES.glob("*.c"):
        make("gcc", "-O1", "-pthread", "-o", source.stem, str(source))
    make("gcc", "-O1", "-static", "-o", "blocks-static", str(SOURCES / "blocks.c"))
    for library in glob.glob(f"{LIBRARIES}/libjemalloc.so.2"):
        make("gcc", "-O1", "-o", "blocks-jemalloc", str(SOURCES / "blocks.c"), library)
    make("g++", "-E", "-P", "code-raw.cc", "-o", "code.cc")
    make("gcc", "-c", "code.c", "-o", "code.o")
    make("xz", "-k", "-1", "-f", "text")
    make("rustc", "-O", "job.rs", "-o", "rust-job")
    make("go", "build", "-o", "go-job", "job.go", env={**os.environ, "GO111MODULE": "off", "GOFLAGS": ""})
    make("javac", "Job.java")
    if shutil.which("git") and not (work / "repository").exists():
        (work / "repository").mkdir()
        make("sh", "-c", "cd repository && git init -q . && for n in 1 2 3 4 5 6; do head -c ${n}00000 ../text > a; cp a b$n; "
             "git add . && git -c user.name=a -c user.email=a@b commit -qm $n; done")
    for server in ("postgres", "mariadb"):
        make("sh", f"{server}.sh", str(work))
