"""The programs of tools/memory-programs: how to prepare their inputs, and how to run them.

None of them is in tools/memory-grid. Commands run in the folder of inputs. A program that is not installed is skipped.
"""

import dataclasses
import pathlib
import random
import shutil
import subprocess

SOURCES = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass
class Program:
    """One program. A server has `load`: a shell command that uses it, once `ready` succeeds; then `stop` ends it. `child` names the
    process to compare, if it is not the command's own. `pool`: hugetlb pages that it needs. `cause`: why its rows may be off."""

    name: str
    command: list
    load: str = ""
    ready: str = ""
    stop: str = "TERM"
    child: str = ""
    pool: int = 0
    cause: str = ""

    def missing(self, work):
        """What is not installed, or an empty text."""
        words = [word for word in self.command if "=" not in word and word not in ("env", "setarch", "-s")]
        return "" if shutil.which(words[0]) or (work / words[0]).exists() else words[0]


def compiler_proper(name):
    """The compiler itself, without its driver."""
    if not shutil.which("gfortran"):
        return name
    return subprocess.run(["gfortran", f"-print-prog-name={name}"], capture_output=True, text=True, check=False).stdout.strip()


def corners(work):
    """One program for each name that `corners` prints."""
    if not (work / "corners").exists():
        return []
    names = subprocess.run([work / "corners"], capture_output=True, text=True, check=True).stdout.split()
    return [Program(f"c-{name}", ["./corners", name], pool=8 if name == "hugetlb" else 0, cause=CORNER_CAUSES.get(name, "")) for name in names]


TOOLS = {
    "m4": "m4 a.m4", "mawk": ["mawk", "{for(i=1;i<=NF;i++)n[$i]++}END{print length(n)}", "text"], "sed": ["sed", "-E", "-n", ":a;N;$!ba;s/(foo|ba[rz])+/x/g;$p", "text"],
    "dot": "dot -Tsvg -o /dev/null g.dot", "xsltproc": "xsltproc s.xsl d.xml", "xmllint": "xmllint --noout d.xml", "groff": "groff -man -Tascii m.ms",
    "gs": "gs -q -dBATCH -dNOPAUSE -sDEVICE=png16m -r100 -sOutputFile=/dev/null p.ps", "flac": "flac -s -f -o /dev/null s.wav", "lame": "lame --quiet s.wav /dev/null",
    "sox": "sox s.wav -n reverb 50 stat", "minisat": "minisat -verb=0 s.cnf", "glpsol": "glpsol --math l.mod", "z3": "z3 q.smt2", "bison": "bison -o /dev/null g.y",
    "tclsh": "tclsh t.tcl", "gnuplot": "gnuplot g.plot", "brotli": "brotli -9 -c text", "lzip": "lzip -k -c -6 text", "diff": "diff text text-2",
    "nasm": "nasm -f elf64 -o /dev/null n.asm", "cppcheck": "cppcheck -q c.c", "tidy": "tidy -q -o /dev/null h.html", "w3m": "w3m -dump -T text/html h.html",
    "aspell": ["sh", "-c", "exec aspell list < text-2"], "iverilog": "iverilog -o /dev/null v.v", "7zr": "7zr a -bso0 -bsp0 -mmt1 -mx5 -so x.7z text", "stockfish": "stockfish bench 16 1 8",
    "vim": ["vim", "-u", "NONE", "-es", "-c", "%s/a/bc/g|%sort|q!", "text"], "pdftotext": "pdftotext p.pdf -", "bc-pi": "bc -lq b.bc",
}

RUNTIMES = {
    "sbcl": "sbcl --script s.lisp", "ocaml": "ocaml o.ml", "octave": "octave-cli --no-init-file o.m", "clisp": "clisp -q s.lisp", "swipl": "swipl -q -f p.pl",
    "R": "Rscript --vanilla r.R", "gp": "gp -q -f g.gp", "maxima": ["maxima", "--very-quiet", "--batch-string=factor(expand((x+y+1)^25));"], "racket": "racket k.rkt",
    "luajit": "luajit l.lua", "erlang": ["erl", "-noshell", "-eval", "lists:sum([length(lists:seq(1,N)) || N <- lists:seq(1,1500)]), halt()."],
    "pypy": "env PYTHONHASHSEED=0 pypy3 -S j.py", "emacs": ["emacs", "-Q", "--batch", "--eval", "(progn (find-file \"text\") (sort-lines nil (point-min) (point-max)))"],
    "java-g1": "java -XX:+UseG1GC -Xmx200m -cp . Work", "java-thp": "java -XX:+UseTransparentHugePages -XX:+UseSerialGC -Xmx200m -cp . Work",
    "node-workers": "node w.js", "go-threads": "./go-work", "python-threads": "env PYTHONHASHSEED=0 python3 -S threads.py",
    "python-processes": "env PYTHONHASHSEED=0 python3 processes.py", "ruby-threads": "ruby --disable-gems r.rb",
}

GROUPS = {
    "pigz": ("pigz -p 2 -k -c text", ""), "make": ("make -j2 -B -s -f work.mk", "make"), "make-cc1": ("make -B -s -f work.mk", "cc1"),
    "pipeline": (["sh", "-c", "sed s/a/b/ text | sort -S 8M | uniq -c | mawk '{n+=$1}END{print n}'"], "sort"), "xargs": (["sh", "-c", "ls | head -40 | xargs -P2 -n4 wc -c"], ""),
    "zstd-T2": ("zstd -q -T2 -9 -k -c text", ""), "git-gc": (["sh", "-c", "rm -rf repository-2; cp -r repository repository-2; exec git -C repository-2 gc -q --prune=now"], "git"),
}

# Why rows are off, by program.
CAUSES = {
    "clisp": "these rows were validated before hksim began the measured peak anew with each exec.",
    "go-threads": "the collector's work depends on the time that its threads get; on a machine with other load it differs from run to run by a factor of two.",
    "java-g1": "its threads differ from run to run, and the kernel had no contiguous memory for many of its huge pages.",
}
CORNER_CAUSES = {
    "main-ends-first": "these rows were validated before hksim read the memory of programs whose first thread has ended.",
    "thp-except-advised": "the program switches huge pages on for itself, so the recording has huge pages and lacks the touches inside.",
    "memory-file": "a write to /proc/PID/mem makes pages present without an exception, so they are not recorded. `validate` says so; a prediction cannot.",
}

CLIENT = "python3 -S client.py"
SERVERS = [
    Program("memcached", "memcached -u root -l 127.0.0.1 -p 7511 -t 1 -m 64".split(), load=f"{CLIENT} memcached 7511", ready=f"{CLIENT} probe 7511"),
    Program("memcached-t4", "memcached -u root -l 127.0.0.1 -p 7512 -t 4 -m 64".split(), load=f"{CLIENT} memcached 7512", ready=f"{CLIENT} probe 7512"),
    Program("redis-thp", ["redis-server", "--save", "", "--port", "7513", "--bind", "127.0.0.1", "--disable-thp", "no"],
            load=f"{CLIENT} redis 7513", ready=f"{CLIENT} probe 7513"),
    Program("redis-fork", ["sh", "-c", "rm -f fork.rdb; exec redis-server --save '' --port 7514 --bind 127.0.0.1 --dir . --dbfilename fork.rdb"],
            load=f"{CLIENT} redis-fork 7514", ready=f"{CLIENT} probe 7514"),
    Program("nginx", ["nginx", "-p", ".", "-c", "nginx.conf"], load=f"{CLIENT} http 7515", ready=f"{CLIENT} probe 7515", stop="QUIT"),
    Program("python-http", "env PYTHONHASHSEED=0 python3 -m http.server --bind 127.0.0.1 7516".split(), load=f"{CLIENT} http 7516", ready=f"{CLIENT} probe 7516"),
    Program("node-http", ["node", "server.js", "7517"], load=f"{CLIENT} http 7517", ready=f"{CLIENT} probe 7517"),
]


def all_programs(work):
    """All programs whose inputs `prepare` wrote into `work`."""
    split = lambda command: command if isinstance(command, list) else command.split()
    found = [Program(name, split(command)) for name, command in {**TOOLS, **RUNTIMES}.items()]
    found.append(Program("f951", [compiler_proper("f951"), "f.f90", "-quiet", "-O1", "-o", "/dev/null"]))
    found += [Program(name, split(command), child=child) for name, (command, child) in GROUPS.items()]
    found += [Program("hugetlb-malloc", "env GLIBC_TUNABLES=glibc.malloc.hugetlb=2 ./corners arenas".split(), pool=24)]
    for program in (*SERVERS, *found):
        program.cause = CAUSES.get(program.name, program.cause)
    found += [Program("tcmalloc", "env LD_PRELOAD=libtcmalloc.so.4 ./corners arenas".split())]
    return found + SERVERS + corners(work)


def prepare(work, seed):
    """Writes the inputs and compiles the programs. What cannot be made is missing later."""
    draw = random.Random(seed)
    write = lambda name, text: (work / name).write_text(text, encoding="ascii")
    write_texts(draw, write)
    write_code(draw, write)
    write_scripts(write)
    run = lambda *command: shutil.which(command[0]) and subprocess.run(command, cwd=work, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run("gcc", "-O1", "-pthread", "-o", "corners", str(SOURCES / "corners.c"))
    run("gcc", "-O1", "-o", "exitmem", str(SOURCES / "exitmem.c"))
    run("sox", "-n", "s.wav", "synth", "4", "sine", "300", "tremolo", "5", "vol", "0.5")
    run("gs", "-q", "-dBATCH", "-dNOPAUSE", "-sDEVICE=pdfwrite", "-sOutputFile=p.pdf", "p.ps")
    run("javac", "Work.java")
    run("env", "GO111MODULE=off", "go", "build", "-o", "go-work", "work.go")
    run("sh", "-c", "git init -q repository && cd repository && git config user.name a && git config user.email a@b && git config gc.auto 0 && "
        "for n in 1 2 3 4 5 6 7 8; do head -c ${n}0000 ../text > a; cp a b$n; git add . && git commit -qm $n; done")


def words(draw, count):
    letters = "abcdefghijklmnopqrstuvwxyz"
    return " ".join("".join(draw.choice(letters) for _ in range(draw.randint(2, 10))) for _ in range(count))


def write_texts(draw, write):
    write("text", "\n".join(words(draw, 12) for _ in range(20000)) + "\n")
    write("text-2", "\n".join(words(draw, 12) for _ in range(18000)) + "\n")
    write("d.xml", "<r>" + "".join(f"<e k='{draw.randrange(99)}'>{words(draw, 3)}</e>" for _ in range(30000)) + "</r>")
    write("h.html", "<html><body>" + "".join(f"<p><b>{words(draw, 20)}<i>{words(draw, 3)}</p>" for _ in range(1500)))
    write("m.ms", ".TH X 1\n" + "\n".join(".PP\n" + words(draw, 80) for _ in range(400)))
    write("g.dot", "digraph g {\n" + "\n".join(f"n{draw.randrange(300)} -> n{draw.randrange(300)};" for _ in range(500)) + "\n}\n")
    write("s.cnf", "p cnf 200 840\n" + "\n".join(" ".join(str(draw.choice([-1, 1]) * draw.randint(1, 200)) for _ in range(3)) + " 0" for _ in range(840)) + "\n")
    write("p.ps", "%!PS\n/F {dup 1 le {pop 1} {dup 1 sub F exch 2 sub F add} ifelse} def 20 F == /a 200000 array def 0 1 199999 {a exch dup put} for showpage\n")
    write("s.xsl", '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:output method="text"/><xsl:template match="/">'
          '<xsl:for-each select="//e"><xsl:sort select="."/><xsl:value-of select="@k"/></xsl:for-each></xsl:template></xsl:stylesheet>')


def write_code(draw, write):
    write("a.m4", "define(`f',`ifelse($1,0,0,`eval($1+f(decr($1)))')')\n" + "f(400)\n" * 60)
    write("g.y", "%token N\n%%\n" + "\n".join(f"r{i}: N r{i + 1} | N N r{i + 1} 'x' ;" for i in range(120)) + "\nr120: N ;\n")
    write("n.asm", "section .text\n" + "\n".join(f"l{i}: mov rax, l{i * 7919 % 8000}\n jmp l{i * 31 % 8000}" for i in range(8000)) + "\n")
    write("c.c", "\n".join(f"int f{i}(int *p) {{ int s = 0; for (int i = 0; i < {i + 3}; i++) s += p[i]; return s; }}" for i in range(200)))
    write("f.f90", "program p\n" + "\n".join(f"call s{i}(1.0d0*{i})" for i in range(100)) + "\ncontains\n" + "\n".join(
        f"subroutine s{i}(x)\nreal(8) :: x, y(100)\ny = x*{i}\nprint *, sum(y)\nend subroutine" for i in range(100)) + "\nend program\n")
    write("v.v", "\n".join(f"module m{i}(input [7:0] a, output [7:0] b); wire [7:0] c; assign c = a + {i % 200}; assign b = c ^ (a << {i % 7}); endmodule" for i in range(1500)))
    write("q.smt2", "(declare-fun x (Int) Int)\n" + "\n".join(
        f"(assert (> (x {i}) (x {draw.randrange(100)})))" if i % 7 == 0 else f"(assert (< (x {i}) {draw.randrange(1000)}))" for i in range(100)) + "\n(check-sat)\n")
    write("l.mod", "param n := 60; set I := 1..n; param c{i in I, j in I} := (i*37+j*91) mod 101; var x{I,I} >= 0; minimize z: sum{i in I,j in I} c[i,j]*x[i,j]; "
          "s.t. a{i in I}: sum{j in I} x[i,j] = 1; b{j in I}: sum{i in I} x[i,j] = 1; solve; end;\n")
    write("work.mk", "all: " + " ".join(f"o{i}" for i in range(6)) + "\n" + "".join(f"o{i}:\n\tgcc -O2 -c -o /dev/null c.c\n" for i in range(6)))
    write("work.go", GO)
    write("Work.java", JAVA)


def write_scripts(write):
    write("t.tcl", "set l {}\nfor {set i 0} {$i < 60000} {incr i} {lappend l [expr {$i*7919 % 60013}]; set a($i) x$i}\nputs [llength [lsort -integer $l]]\n")
    write("s.lisp", "(let ((h (make-hash-table))) (dotimes (i 200000) (setf (gethash i h) (list i i))) (print (hash-table-count h))) (exit)\n")
    write("o.ml", "let rec b n = if n = 0 then [] else (n, string_of_int n) :: b (n-1)\nlet () = let t = ref 0 in for _ = 1 to 20 do t := !t + List.length (b 20000) done; print_int !t\n")
    write("o.m", "a = zeros(300); for i=1:300; for j=1:300; a(i,j)=mod(i*j,17); end; end; b=a*a; disp(sum(b(:)))\n")
    write("p.pl", ":- X = 1, numlist(1, 200000, L), foldl([A,B,C]>>(C is A+B), L, 0, S), print(S), nl, halt.\n")
    write("r.R", "set.seed(1); x <- matrix(runif(250000), 500); y <- solve(x); cat(sum(abs(y)) > 0, '\\n'); l <- lapply(1:50000, function(i) c(i, i)); cat(length(l), '\\n')\n")
    write("g.gp", "p = 1; for(i=1, 300, p = p * i + 1); print(#digits(p)); v = vector(50000, i, i^2 % 977); print(vecsum(v)); print(factor(2^101-1))\n")
    write("g.plot", "set terminal svg\nset output '/dev/null'\nset samples 5000\nplot sin(x)*x, cos(x**2)\n")
    write("b.bc", "scale=1500\n4*a(1)\n")
    write("k.rkt", "#lang racket/base\n(define h (make-hash)) (for ([i 100000]) (hash-set! h i (list i i))) (displayln (hash-count h))\n")
    write("l.lua", "local t = {} for i = 1, 300000 do t[i] = {i, 'x' .. i} if i % 3 == 0 then t[i - 1] = nil end end print(#t)\n")
    write("j.py", "d = {}\nfor i in range(400000):\n    d[i] = [i, str(i)]\nprint(len(d))\n")
    write("r.rb", "t = 4.times.map { |n| Thread.new { (1..60000).map { |i| 'x' * (i % 50) + n.to_s }.size } }\nputs t.sum(&:value)\n")
    write("threads.py", "import threading\ndef work(n):\n    return [bytes(i % 3000) for i in range(4000 * n)]\nfor n in range(1, 5):\n"
          "    t = threading.Thread(target=work, args=(n,)); t.start(); t.join()\n")
    write("processes.py", "import multiprocessing as m\ndef f(n):\n    return sum(len(str(i)) for i in [list(range(20000)) for _ in range(n)])\nif __name__ == '__main__':\n"
          "    x = [str(i) for i in range(100000)]\n    with m.get_context('fork').Pool(2) as p:\n        print(sum(p.map(f, range(8), chunksize=1)))\n")
    write("w.js", "const w = require('worker_threads');\nif (w.isMainThread) { for (let i = 0; i < 3; i++) new w.Worker(__filename, {workerData: i}); }\n"
          "else { let a = []; for (let i = 0; i < 150000; i++) a.push({i, s: 'x' + i}); console.log(a.length); }\n")
    write("server.js", "const kept = []; require('http').createServer((q, r) => { kept.push(Buffer.alloc(20000, 1)); r.end('x'.repeat(5000)); })"
          ".listen(+process.argv[2], '127.0.0.1'); process.on('SIGTERM', () => process.exit(0));\n")
    write("nginx.conf", "daemon off; user root; pid nginx.pid; worker_processes 1; error_log stderr; events { }\nhttp { access_log off; client_body_temp_path t1; proxy_temp_path t2; "
          "fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5; gzip on; gzip_types *; server { listen 127.0.0.1:7515; root .; } }\n")
    write("client.py", (SOURCES / "client.py").read_text(encoding="ascii"))


GO = """package main
import ("fmt"; "sync")
type node struct { left, right *node; v [6]int }
func tree(depth int) *node { if depth == 0 { return &node{} }; return &node{left: tree(depth - 1), right: tree(depth - 1)} }
func (n *node) count() int { if n == nil { return 0 }; return 1 + n.left.count() + n.right.count() }
func main() {
    var wait sync.WaitGroup
    long := tree(15)
    for i := 0; i < 4; i++ { wait.Add(1); go func() { defer wait.Done(); for k := 0; k < 15; k++ { tree(12).count() } }() }
    wait.Wait()
    fmt.Println(long.count())
}
"""
JAVA = """import java.util.*;
public class Work {
    public static void main(String[] a) throws Exception {
        Thread[] threads = new Thread[3];
        for (int t = 0; t < 3; t++) {
            threads[t] = new Thread(() -> { for (int k = 0; k < 20; k++) { List<int[]> l = new ArrayList<>(); for (int i = 0; i < 5000; i++) l.add(new int[i % 300]); } });
            threads[t].start();
        }
        for (Thread t : threads) t.join();
        Map<Integer, String> m = new HashMap<>();
        for (int i = 0; i < 200000; i++) m.put(i, "v" + i);
        System.out.println(m.size());
    }
}
"""
