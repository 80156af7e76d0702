"""The programs of the benchmark: a name, and a command that runs without a shell. {names} are inputs (inputs.py), `< FILE` is standard input.

The work of each program is the same in every run, and takes a few seconds at most. Programs with their own malloc (rustc) and static programs
(go) are excluded, because the recorder cannot interpose malloc in them.
"""

import shlex
import socket
import time

INTERPRETERS = {
    "perl": "perl {jobs}/perl.pl",
    "python3": "/usr/bin/python3 {traces}/json_job.py 2000",
    "ruby": "ruby {traces}/ruby_job.rb 2500",
    "php": "php {jobs}/php.php",
    "node": "node {traces}/node_job.js 200",
    "lua": "lua5.4 {jobs}/lua.lua",
    "tclsh": "tclsh {jobs}/tcl.tcl",
    "guile": "guile --no-auto-compile {jobs}/guile.scm",
    "gawk": "gawk -f {jobs}/awk.awk {text}",
    "mawk": "mawk -f {jobs}/awk.awk {text}",
    "bash": "bash {jobs}/bash.sh",
    "bc": "bc -l {sums}",
    "vim": "vim -u NONE -i NONE -n -es -S {jobs}/vim.vim {short}",
}
COMPILERS = {
    "cc1 -O2": "{cc1} -fpreprocessed -quiet -O2 {c} -o /dev/null",
    "cc1plus": "{cc1plus} -fpreprocessed -quiet -std=c++17 {cpp} -o /dev/null",
    "as": "as {asm} -o /dev/null",
    "ld": "ld -r {object} {object} --allow-multiple-definition -o /dev/null",
    "objdump": "objdump -dC {plain_object}",
    "gdb": "gdb -nx -batch -ex 'info functions regex' {object}",
    "cargo": "{toolchain}/cargo metadata --offline --no-deps --format-version 1 --manifest-path {root}/Cargo.toml",
    "bison": "bison -o /dev/null {jobs}/grammar.y",
    "flex": "flex -t {scanner}",
    "m4": "m4 {macros}",
    "make": "make -n -f {makefile} all",
    "ninja": "ninja -n -C {ninja}",
    "cmake": "cmake -P {cmake}",
}
COMPRESSORS = {
    "xz": "xz -6 -c -T1 {text}",
    "xz -T2": "xz -3 -c -T2 --block-size=500KiB {text}",
    "zstd": "zstd -12 -c --single-thread {text}",
    "zstd -T2": "zstd -6 -c -T2 {text}",
    "bzip2": "bzip2 -c {text}",
    "7z -mmt2": "7z a -txz -mmt2 -so {fresh}/x {text}",
    "brotli": "brotli -q 9 -c {text}",
    "pigz -p2": "pigz -p2 -c {text}",
    "lz4": "lz4 -9 -c {text}",
}
DATABASES = {
    "sqlite3": "sqlite3 :memory: < {jobs}/sqlite.sql",
    "mariadbd": "mariadbd --no-defaults --bootstrap --user=root --datadir={fresh} --innodb-buffer-pool-size=16M < {jobs}/mariadb.sql",
    "redis-server": "redis-server --port 0 --unixsocket {socket} --save '' --daemonize no",
    "redis-server, BGSAVE": "redis-server --port 0 --unixsocket {socket} --save '' --daemonize no --dir {fresh} --rdb-key-save-delay 50",
}
TEXTS = {
    "sort": "sort --parallel=1 {text}",
    "sort --parallel=2": "sort --parallel=2 {text} {changed}",
    "jq": "jq -c 'map(select(.id % 3 == 0) | .l)' {rows}",
    "grep -F": "grep -c -F -f {words} {text}",
    "rg -j2": "rg -j2 -c -e 'alpha[0-9]+ .*zeta' {tree}",
    "sed": "sed -n 'H;${{x;s/alpha/omega/g;p}}' {text}",
    "diff": "diff -I .* {text} {changed}",
    "xmllint": "xmllint --noout --xpath 'count(//item[@grade>50])' {xml}",
    "xsltproc": "xsltproc {jobs}/table.xsl {xml}",
    "pandoc": "pandoc -t html {markdown}",
    "troff": "troff -Tutf8 -man {troff}",
    "localedef": "localedef -i de_DE -f UTF-8 --no-archive {fresh}/x",
}
FILES = {
    "git log": "git --git-dir={git} log --stat -300 main",
    "git pack-objects": "git --git-dir={git} pack-objects --all --revs --stdout --no-reuse-delta --threads=1 -q",
    "git pack-objects, 2 threads": "git --git-dir={git} pack-objects --all --revs --stdout --no-reuse-delta --threads=2 -q",
    "find": "find {tree} -type f -size +1k -printf '%p %s\\n'",
    "tar": "tar --sort=name -cf {fresh}/x {tree}",
    "rsync": "rsync -a {tree}/ {fresh}",
    "curl": "curl -s file://{text}",
    "openssl": "openssl storeutl -noout -certs -text /etc/ssl/certs/ca-certificates.crt",
    "gpg": "gpg --batch --homedir {home} -z 9 --store -o {fresh}/x {text}",
}
PICTURES = {
    "ffmpeg": "ffmpeg -v error -threads 1 -f lavfi -i testsrc2=d=2:s=320x240 -c:v mpeg4 -threads 1 -f null -",
    "ffmpeg, 2 threads": "ffmpeg -v error -filter_threads 1 -f lavfi -i testsrc2=d=2:s=320x240 -c:v libx264 -threads 2 -f null -",
    "convert": "convert-im6.q16 {image} -resize 150% -blur 0x2 -colors 64 png:/dev/null",
    "dot": "dot -Tsvg {graph}",
    "gnuplot": "gnuplot {jobs}/plot.gp",
    "gs": "gs -q -dBATCH -dNOPAUSE -dSAFER -sDEVICE=ppmraw -r40 -sOutputFile=/dev/null {pdf}",
    "pdftotext": "pdftotext {pdf} -",
    "pdftoppm": "pdftoppm -r 40 {pdf} {fresh}/x",
}
PROGRAMS = {**INTERPRETERS, **COMPILERS, **COMPRESSORS, **DATABASES, **TEXTS, **FILES, **PICTURES}


def command(name, inputs):
    """The words of a program's command, and the path of its standard input."""
    words = [word.format_map(inputs) for word in shlex.split(PROGRAMS[name])]
    if "<" in words:
        at = words.index("<")
        return words[:at], words[at + 1]
    return words, "/dev/null"


class Redis:
    """A connection to the server. The constructor waits until the server listens."""

    def __init__(self, inputs):
        self.server = socket.socket(socket.AF_UNIX)
        for _ in range(200):
            try:
                self.server.connect(str(inputs["socket"]))
                break
            except OSError:
                time.sleep(0.05)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.close()

    def ask(self, requests):
        """Sends requests that have a one-line reply each."""
        for at in range(0, len(requests), 100):
            batch = requests[at : at + 100]
            self.server.sendall("".join(f"{request}\r\n" for request in batch).encode())
            answered = 0
            while answered < len(batch):
                answered += self.server.recv(1 << 16).count(b"\n")

    def is_saving(self):
        self.server.sendall(b"INFO persistence\r\n")
        answer = b""
        while b"rdb_bgsave_in_progress:" not in answer or not answer.endswith(b"\r\n"):
            answer += self.server.recv(1 << 16)
        return b"rdb_bgsave_in_progress:1" in answer

    def shut_down(self):
        self.server.sendall(b"SHUTDOWN NOSAVE\r\n")


def redis_client(inputs):
    """Puts load on the server, and ends it."""
    with Redis(inputs) as redis:
        requests = [request for n in range(20000) for request in (f"SET key:{n} {'v' * (n * 7919 % 300)}", f"RPUSH list:{n % 97} element{n}")]
        requests += [f"DEL key:{n}" for n in range(0, 20000, 3)]
        redis.ask(requests)
        redis.shut_down()


def redis_snapshot_client(inputs):
    """Puts load on the server, requests a snapshot, continues to write during and after the snapshot (about a second), and ends the server."""
    with Redis(inputs) as redis:
        redis.ask([f"SET key:{n} {'v' * (n * 7919 % 300)}" for n in range(20000)])
        redis.ask(["BGSAVE"])
        redis.ask([f"SET key:{n} {'w' * (n * 104729 % 300)}" for n in range(0, 20000, 7)])
        while redis.is_saving():
            time.sleep(0.05)
        redis.ask([f"APPEND key:{n} more" for n in range(0, 20000, 5)])
        redis.shut_down()


# Functions that run in parallel with a program: a server needs a client.
CLIENTS = {"redis-server": redis_client, "redis-server, BGSAVE": redis_snapshot_client}
