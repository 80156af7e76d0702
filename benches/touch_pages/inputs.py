"""The inputs of the programs. Each input is created when a command first uses it, and is equal in every run and on every machine."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Programs get a fixed environment with fixed seeds. PHP and Python allocate with malloc.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PERL_HASH_SEED": "0",
    "PYTHONHASHSEED": "0",
    "PYTHONMALLOC": "malloc",
    "USE_ZEND_ALLOC": "0",
}


class Missing(Exception):
    """The reason why a program cannot run on this machine."""


def which(program):
    """The path of a program in ENVIRONMENT's PATH, for commands that run in another environment."""
    path = shutil.which(program, path=ENVIRONMENT["PATH"])
    if not path:
        raise Missing(f"{program} is not installed")
    return path


class Inputs(dict):
    """The values of the {names} in commands: `{text}` is the result of the method `text`."""

    def __init__(self, folder):
        super().__init__(jobs=HERE / "jobs", traces=ROOT / "traces" / "jobs", root=ROOT)
        self.folder = Path(folder)
        self.environment = {**ENVIRONMENT, "HOME": str(folder)}
        self.fresh_count = 0

    def __missing__(self, name):
        if name == "fresh":  # a new empty folder at each use
            self.fresh_count += 1
            folder = self.folder / f"fresh-{self.fresh_count}"
            folder.mkdir()
            return folder
        self[name] = getattr(self, name)()
        return self[name]

    def make(self, name, *command, stdin=None):
        """A file with the output of a command."""
        path = self.folder / name
        with open(path, "wb") as out:
            done = subprocess.run(
                [which(command[0]), *map(str, command[1:])],
                stdin=stdin, stdout=out, stderr=subprocess.PIPE, env=self.environment, cwd=self.folder,
            )  # fmt: skip
        if done.returncode != 0:
            raise Missing(f"{command[0]}: {done.stderr.decode(errors='replace')[-200:]}")
        return path

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def home(self):
        return self.folder

    def socket(self):
        return self.folder / "socket"

    # Texts

    def lines(self, count):
        words = "alpha beta gamma delta eps zeta".split()
        return [" ".join(f"{words[(n * 7 + k) % 6]}{(n * 7919 + k * 104729) % 10007}" for k in range(7)) for n in range(count)]

    def text(self):
        return self.write("text.txt", "\n".join(self.lines(30000)) + "\n")

    def short(self):
        return self.write("short.txt", "\n".join(self.lines(3000)) + "\n")

    def changed(self):
        lines = [line if n % 17 else line.upper() for n, line in enumerate(self.lines(30000)) if n % 101]
        return self.write("changed.txt", "\n".join(lines) + "\n")

    def words(self):
        return self.write("words.txt", "".join(f"alpha{n * 31 % 10007}\n" for n in range(3000)))

    def rows(self):
        return self.write("rows.json", json.dumps([{"id": i, "k": f"v{i}", "l": list(range(i % 7))} for i in range(20000)]))

    def xml(self):
        items = [f'<item id="i{n}" grade="{n * 7919 % 101}"><name>item {n}</name><b>{"x" * (n % 40)}</b></item>' for n in range(8000)]
        return self.write("items.xml", f"<items>{''.join(items)}</items>\n")

    def markdown(self):
        parts = [f"# Part {n}\n\n*{line}* and **bold**, `code`\n\n- one\n- [two](#part-{n})\n" for n, line in enumerate(self.lines(400))]
        return self.write("text.md", "\n".join(parts))

    def troff(self):
        return self.write("text.1", ".TH JOB 1\n" + "".join(f".SH PART {n}\n.B bold\n{line}\n.PP\n" for n, line in enumerate(self.lines(3000))))

    def graph(self):
        chance = random.Random(7)
        edges = [f"n{chance.randrange(150)} -> n{chance.randrange(150)};" for _ in range(260)]
        return self.write("graph.dot", "digraph {\n" + "\n".join(edges) + "\n}\n")

    def sums(self):
        return self.write("sums.bc", "scale=1500\n4*a(1)\ne(1)\n2^20000\nfor (i = 1; i < 3000; i++) v[i] = v[i - 1] + i / 7\nv[2999]\nquit\n")

    def makefile(self):
        rules = [f"t{n}: t{n // 3} t{n // 7}\n\tcp t{n // 3} $@ # {'x' * (n % 30)}\n" for n in range(1, 5000)]
        return self.write("Makefile", f"all: {' '.join(f't{n}' for n in range(1, 5000))}\nt0:\n" + "".join(rules))

    def ninja(self):
        rules = [f"build t{n}: cp t{n // 3} | t{n // 7}\n  flag = {'x' * (n % 30)}\n" for n in range(1, 10000)]
        folder = self.folder / "ninja"
        folder.mkdir()
        (folder / "t0").write_text("")
        (folder / "build.ninja").write_text("rule cp\n  command = cp $in $out $flag\n" + "".join(rules))
        return folder

    def macros(self):
        text = "".join(f"define(`m{n}', `m{n // 2}($1) {n}')dnl\n" for n in range(1, 5000)) + "define(`m0', `$1')dnl\n"
        return self.write("macros.m4", text + "".join(f"m{n}(x)\n" for n in range(0, 5000, 3)))

    def cmake(self):
        text = "".join(f"list(APPEND names name{n})\nset(value{n} \"${{names}}\")\n" for n in range(400))
        return self.write("job.cmake", text + "list(SORT names)\nstring(REPLACE name n short \"${names}\")\n")

    def scanner(self):
        words = "".join(f"word{n * 7919 % 10007}x  return {n};\n" for n in range(300))
        return self.write("scanner.l", f"%%\n{words}[a-z]+[0-9]*(\\.[0-9]+)?  return -1;\n[ \\t\\n]+ ;\n%%\n")

    # Files that tools generate from texts

    def tree(self):
        folder = self.folder / "tree"
        lines = self.lines(3000)
        for n in range(1500):
            place = folder / f"d{n % 37}" / f"e{n % 11}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"file{n}.txt").write_text("\n".join(lines[n : n + n % 90]) + "\n")
        return folder

    def git(self):
        """A repository of 400 commits, created by the same script as the repository of traces/git-pack-objects.hkt."""
        repository = self.folder / "repository.git"
        history = self.make("history", "/usr/bin/python3", self["traces"] / "git_history.py", "400")
        self.make("git.log", "git", "init", "-q", "--bare", repository)
        with open(history, "rb") as stream:
            self.make("git.log", "git", f"--git-dir={repository}", "fast-import", "--quiet", stdin=stream)
        return repository

    def c(self):
        """A preprocessed C source."""
        functions = [
            f"static int f{n}(struct s *p, int k) {{ for (int i = 0; i < k; i++) p->a[i % 8] += p->b * {n} ^ (i << {n % 7});"
            f" return k > 3 ? f{n - 1}(p, k / 2) + p->a[{n % 8}] : g(\"text {n}\", k); }}"
            for n in range(1, 400)
        ]
        head = "struct s { int a[8]; long b; }; int g(const char *, int); static int f0(struct s *p, int k) { return p->a[k & 7]; }\n"
        return self.write("job.i", head + "\n".join(functions) + "\nint h(struct s *p, int k) { return f399(p, k); }\n")

    def cpp(self):
        return self.make("job.ii", "g++", "-E", "-std=c++17", self["jobs"] / "classes.cpp")

    def asm(self):
        return self.make("job.s", "gcc", "-O1", "-S", "-fpreprocessed", self["c"], "-o", "-")

    def object(self):
        path = self.folder / "job.o"
        self.make("as.log", "g++", "-std=c++17", "-g", "-c", self["cpp"], "-o", path)
        return path

    def plain_object(self):
        path = self.folder / "plain.o"
        self.make("as.log", "as", self["asm"], "-o", path)
        return path

    def pdf(self):
        path = self.folder / "text.pdf"
        self.make("ps2pdf.log", "ps2pdf", self.ps(), path)
        return path

    def ps(self):
        lines = [f"/Times-Roman findfont {8 + n % 9} scalefont setfont 40 {760 - n % 50 * 15} moveto ({line}) show" for n, line in enumerate(self.lines(1000))]
        pages = ["\n".join(lines[at : at + 50]) + "\nshowpage\n" for at in range(0, 1000, 50)]
        return self.write("text.ps", "%!PS\n" + "".join(pages))

    def image(self):
        width, height = 640, 480
        path = self.folder / "image.ppm"
        pixels = bytes((x * y + band * 80 * (x ^ y)) >> 4 & 255 for y in range(height) for x in range(width) for band in range(3))
        path.write_bytes(b"P6 %d %d 255\n" % (width, height) + pixels)
        return path

    # Programs outside the usual folders

    def cc1(self):
        return self._of_gcc("cc1")

    def cc1plus(self):
        return self._of_gcc("cc1plus")

    def _of_gcc(self, name):
        path = self.make(name, "gcc", f"-print-prog-name={name}").read_text().strip()
        if not os.path.isabs(path):
            raise Missing(f"{name} is not installed")
        return path

    def toolchain(self):
        """The folder of the Rust toolchain's programs. The programs in PATH are rustup's, which only start these."""
        found = shutil.which("rustc")
        if not found:
            raise Missing("rustc is not installed")
        return Path(subprocess.run([found, "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()) / "bin"
