"""Services that are inspected: each starts, loads itself, and can say whether it still answers."""

import glob
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path


class Missing(Exception):
    """The service is not installed."""


def found(name, *folders):
    path = shutil.which(name) or next((path for folder in folders for path in sorted(glob.glob(f"{folder}/{name}"))), None)
    if not path:
        raise Missing(f"{name} is not installed")
    return path


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Service:
    """A process that was started, with those below it."""

    def __init__(self, words, **more):
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, **more)
        self.pid = self.process.pid

    def end(self):
        self.process.kill()
        self.process.wait()


class Printing(Service):
    """A program of ours that prints `ready`, and a line for each line that it reads."""

    def __init__(self, words, **more):
        super().__init__(words, stdout=subprocess.PIPE, text=True, **more)
        if self.process.stdout.readline().strip() != "ready":
            self.end()
            raise Missing(f"{words[0]} does not run the program")

    def answers(self):
        self.process.stdin.write("ask\n")
        self.process.stdin.flush()
        return bool(self.process.stdout.readline())


class Redis(Service):
    """30 000 values of 1 KiB, of which every third is deleted."""

    def __init__(self, folder):
        self.port = free_port()
        words = [found("redis-server"), "--port", str(self.port), "--save", "", "--dir", str(folder)]
        super().__init__(words, stdout=subprocess.DEVNULL)
        self.connection = self.connected()
        for key in range(30_000):
            self.ask("SET", f"key:{key}", "x" * 1024)
        for key in range(0, 30_000, 3):
            self.ask("DEL", f"key:{key}")

    def connected(self):
        for _ in range(200):
            try:
                return socket.create_connection(("127.0.0.1", self.port))
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise Missing("redis-server does not listen")

    def ask(self, *words):
        parts = [f"*{len(words)}\r\n"] + [f"${len(word)}\r\n{word}\r\n" for word in words]
        self.connection.sendall("".join(parts).encode())
        return self.connection.recv(4096)

    def answers(self):
        return self.ask("PING").startswith(b"+PONG")


class Postgres:
    """A server with a table of 300 000 rows; the process is a backend that has sorted it."""

    def __init__(self, folder):
        binaries = "/usr/lib/postgresql/*/bin"
        initdb, server, psql = (found(name, binaries) for name in ("initdb", "postgres", "psql"))
        try:
            shutil.chown(folder, "postgres")
        except LookupError as why:
            raise Missing("the user postgres does not exist") from why
        self.folder, self.port = folder, free_port()
        self.data = folder / "data"
        owner = {"user": "postgres", "group": "postgres", "cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([initdb, "-D", self.data, "--no-sync", "-A", "trust"], check=True, **owner)
        words = [server, "-D", self.data, "-p", str(self.port), "-k", folder, "-c", "fsync=off"]
        self.server = subprocess.Popen(words, start_new_session=True, **owner)
        while not (folder / f".s.PGSQL.{self.port}").exists():
            time.sleep(0.1)
        owner.update(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.client = subprocess.Popen([psql, "-h", folder, "-p", str(self.port), "-qAt", "postgres"], **owner)
        self.ask("set work_mem = '64MB'; create temp table t as select md5(i::text) as s from generate_series(1, 300000) i;")
        self.ask("create temp table u as select * from t order by s;")
        self.pid = int(self.ask("select pg_backend_pid();"))

    def ask(self, statement):
        self.client.stdin.write(f"{statement}\n\\echo end\n")
        self.client.stdin.flush()
        lines = []
        while (line := self.client.stdout.readline().strip()) != "end":
            lines.append(line)
        return " ".join(lines)

    def answers(self):
        return self.ask("select count(*) from u;") == "300000"

    def end(self):
        self.client.kill()
        self.client.wait()
        # A postmaster that is killed leaves its children to themselves.
        self.server.terminate()
        try:
            self.server.wait(20)
        except subprocess.TimeoutExpired:
            self.server.kill()


JAVA = """
import java.util.*;
public class Load {
    public static void main(String[] arguments) throws Exception {
        List<byte[]> kept = new ArrayList<>();
        for (int i = 0; i < 4000; i++) { byte[] block = new byte[20000]; if (i % 2 == 0) kept.add(block); }
        System.out.println("ready");
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) { input.nextLine(); System.out.println(kept.size()); }
    }
}
"""

GO = """
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
)

func main() {
	var kept [][]byte
	for i := 0; i < 4000; i++ {
		block := make([]byte, 20000)
		for j := range block { block[j] = byte(i) }
		if i%2 == 0 { kept = append(kept, block) }
	}
	debug.FreeOSMemory()
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() { fmt.Println(len(kept)) }
}
"""

NODE = """
const kept = [];
for (let i = 0; i < 200000; i++) kept.push({ number: i, text: "x" + i });
console.log("ready");
require("readline").createInterface({ input: process.stdin }).on("line", () => console.log(kept.length));
"""


def java(folder):
    (folder / "Load.java").write_text(JAVA)
    return Printing([found("java"), "-Xmx512m", str(folder / "Load.java")])


def java_advised(folder):
    """With MADV_HUGEPAGE on its heap."""
    (folder / "Load.java").write_text(JAVA)
    return Printing([found("java"), "-Xmx512m", "-XX:+UseTransparentHugePages", str(folder / "Load.java")])


def go(folder):
    (folder / "load.go").write_text(GO)
    compiler = found("go", "/usr/local/go/bin")
    environment = os.environ | {"GOCACHE": str(folder / "cache"), "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
    built = subprocess.run([compiler, "build", "-o", "load", "load.go"], cwd=folder, env=environment, capture_output=True, text=True)
    if built.returncode != 0:
        raise Missing(f"go build fails: {built.stderr.strip().splitlines()[-1:]}")
    # It gives memory back with MADV_FREE.
    return Printing([str(folder / "load")], env=os.environ | {"GODEBUG": "madvdontneed=0"})


def node(_folder):
    return Printing([found("node"), "-e", NODE])


class Chromium(Service):
    """A browser without a screen; the process is the renderer of a page that has made 100 000 elements."""

    PAGE = "<body><script>for (let i = 0; i < 1e5; i++) document.body.append(document.createElement('p'))</script>"

    def __init__(self, folder):
        page = folder / "page.html"
        page.write_text(self.PAGE)
        words = [found("chromium"), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
                 "--remote-debugging-port=0", str(page)]
        super().__init__(words, stdout=subprocess.DEVNULL)
        self.pid = self.renderer()
        time.sleep(5)

    def renderer(self):
        for _ in range(300):
            for path in glob.glob("/proc/[0-9]*/cmdline"):
                try:
                    # A process that the zygote forked has all arguments in one.
                    if b"--type=renderer" in Path(path).read_bytes() and os.getpgid(int(path.split("/")[2])) == self.process.pid:
                        return int(path.split("/")[2])
                except (FileNotFoundError, ProcessLookupError):
                    continue
            time.sleep(0.1)
        self.end()
        raise Missing("chromium starts no renderer")

    def answers(self):
        return os.path.exists(f"/proc/{self.pid}")

    def end(self):
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()


ALL = {"redis": Redis, "postgres": Postgres, "java": java, "java-thp": java_advised, "go": go, "node": node, "chromium": Chromium}
