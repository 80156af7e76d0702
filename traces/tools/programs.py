"""Workloads that are single programs, which read their input, print results and exit."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from launch import ENVIRONMENT

JOBS = Path(__file__).resolve().parent.parent / "jobs"
LIMIT_S = 300
LIBC = "glibc " + subprocess.run(["ldd", "--version"], capture_output=True, text=True).stdout.split("\n")[0].split()[-1]


def first_line(*command):
    """The version that a program reports."""
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT).stdout.split("\n")[0].strip()


def which(tool):
    """The path of a program in the launcher's PATH."""
    return shutil.which(tool, path=ENVIRONMENT["PATH"])


class Program:
    """One command. `run` returns the digest of its results."""

    name = ""  # of the trace
    does = ""  # a line for the manifest
    tools = {}  # required programs: program -> Debian package
    env = {}
    load_s = None  # for servers: seconds that the load of the last run took

    def __init__(self, work):
        self.work = Path(work)

    def missing(self):
        """The reason why the workload cannot run here, or None."""
        absent = [f"{tool} (apt install {package})" for tool, package in self.tools.items() if not which(tool)]
        return f"missing: {', '.join(absent)}" if absent else None

    def prepare(self):
        """Creates the input in self.work."""

    def job(self, name):
        """Copies an input from jobs/ to the work folder, so that the command has the same short path on every machine."""
        return shutil.copy(JOBS / name, self.work / name)

    def make(self, *command, **options):
        """Runs a preparatory command."""
        subprocess.run(command, check=True, cwd=self.work, env=ENVIRONMENT, stderr=subprocess.PIPE, **options)

    def command(self):
        raise NotImplementedError

    def shown_command(self):
        variables = [f"{name}={value}" for name, value in self.env.items()]
        return " ".join([*variables, "hksim record -o", f"{self.name}.hkt", "--", *map(str, self.command())])

    def version(self):
        raise NotImplementedError

    def allocator(self):
        return LIBC

    def results(self, printed):
        """The bytes of the program's results: its output and other files."""
        return printed

    def run(self, launcher):
        log = self.work / "stderr.log"
        with open(log, "wb") as errors:
            started = launcher.start(
                self.command(), self.work, self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )
            printed, _ = started.communicate(timeout=LIMIT_S)
        if started.returncode != 0:
            raise RuntimeError(f"{self.name}: exit status {started.returncode}: {log.read_text(errors='replace')[-2000:]}")
        return hashlib.sha256(self.results(printed)).hexdigest()


class Python(Program):
    name, does = "python-json", "json_job.py: encodes and decodes 800 records five times, without Python's own pools"
    tools, env = {"/usr/bin/python3": "python3"}, {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}

    def prepare(self):
        self.job("json_job.py")

    def command(self):
        return ["/usr/bin/python3", "json_job.py", "800"]

    def version(self):
        return first_line("/usr/bin/python3", "--version")


class Sqlite(Program):
    name, does = "sqlite-memory", "sqlite_job.sql: a table of 4000 rows in memory"
    tools = {"sqlite3": "sqlite3"}

    def prepare(self):
        self.job("sqlite_job.sql")

    def command(self):
        return ["sqlite3", ":memory:", ".read sqlite_job.sql"]

    def shown_command(self):
        return f'hksim record -o {self.name}.hkt -- sqlite3 :memory: ".read sqlite_job.sql"'

    def version(self):
        return f"SQLite {first_line('sqlite3', '--version').split()[0]}"


class Node(Program):
    name, does = "node-json", "node_job.js: JSON, maps, buffers outside of V8's heap, deflate, hashes"
    tools = {"node": "nodejs"}

    def prepare(self):
        self.job("node_job.js")

    def command(self):
        return ["node", "node_job.js", "900"]

    def version(self):
        return f"Node.js {first_line('node', '--version').lstrip('v')}"


class Ruby(Program):
    name, does = "ruby-json", "ruby_job.rb: strings, arrays, hashes, JSON, substitutions"
    tools = {"ruby": "ruby"}

    def prepare(self):
        self.job("ruby_job.rb")

    def command(self):
        return ["ruby", "ruby_job.rb", "2500"]

    def version(self):
        return " ".join(first_line("ruby", "--version").split()[:2]).capitalize()


class Cc1plus(Program):
    name, does = "cc1plus", "GCC's C++ compiler itself, on templates.cpp: <regex>, nested maps, variants"
    tools = {"g++": "g++"}

    def prepare(self):
        self.compiler = first_line("g++", "-print-prog-name=cc1plus")
        self.make("g++", "-std=c++17", "-E", "-o", "templates.ii", self.job("templates.cpp"))

    def command(self):
        return [self.compiler, "-fpreprocessed", "-quiet", "-std=c++17", "templates.ii", "-o", "templates.s"]

    def version(self):
        return f"GCC {first_line('g++', '-dumpfullversion')}"

    def results(self, printed):
        return printed + (self.work / "templates.s").read_bytes()


class Server(Program):
    name, does = "cross-thread-server", "server.cpp: two acceptors, three workers, a sender; most frees are another thread's"
    tools = {"g++": "g++"}

    def prepare(self):
        self.make("g++", "-std=c++17", "-O2", "-pthread", "-o", "server", self.job("server.cpp"))

    def command(self):
        return ["./server", "20000"]

    def version(self):
        return f"libstdc++ of GCC {first_line('g++', '-dumpfullversion')}"


class GitPack(Program):
    name, does = "git-pack-objects", "packs a repository of 300 commits with 4 threads"
    tools = {"git": "git"}

    def prepare(self):
        self.make("git", "init", "--quiet", "--bare", "repository.git")
        with open(self.work / "history", "wb") as history:
            subprocess.run([sys.executable, JOBS / "git_history.py", "300"], check=True, stdout=history)
        with open(self.work / "history", "rb") as history:
            self.make("git", "-C", "repository.git", "fast-import", "--quiet", stdin=history)

    def command(self):
        options = "--threads=4 --window=20 --no-reuse-delta --all -q"
        return ["git", "--git-dir=repository.git", "pack-objects", *options.split(), "pack"]

    def version(self):
        return first_line("git", "--version").replace("git version", "git")

    def results(self, printed):
        """The objects in the pack. The pack's bytes and name depend on the distribution of work over threads."""
        (pack,) = self.work.glob("pack-*.pack")
        listed = subprocess.run(
            ["git", "verify-pack", "-v", pack], check=True, capture_output=True, text=True, env=ENVIRONMENT
        ).stdout
        for old in self.work.glob("pack-*"):
            old.chmod(0o600)
            old.unlink()
        rows = [line.split() for line in listed.splitlines()]
        objects = sorted(f"{row[0]} {row[1]}" for row in rows if len(row[0]) == 40)
        if not objects:
            raise RuntimeError("git verify-pack lists no object")
        return "\n".join(objects).encode()
