"""Workloads that are servers under load. The servers accept only local connections, use separate folders, and are ended afterwards."""

import hashlib
import os
import pwd
import shutil
import socket
import subprocess
import time
from pathlib import Path

from launch import ENVIRONMENT
from programs import JOBS, LIMIT_S, Program, first_line


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class LoadedServer(Program):
    """Starts the server, runs the load, reads its data, and ends it. Sets `load_s` to the seconds of the load."""

    user = None  # the user to run as, if the server refuses to run as root

    def ready(self):
        """Whether the server responds."""
        raise NotImplementedError

    def load(self):
        raise NotImplementedError

    def data(self):
        """The server's data after the load, as bytes."""
        raise NotImplementedError

    def fresh(self):
        """Resets the data to its initial state. Called before each run."""

    def client(self, *command):
        """Runs a client of the server. Returns its output."""
        done = subprocess.run(
            command, cwd=self.work, env=ENVIRONMENT, capture_output=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self.name}: {command[0]}: {done.stderr.decode(errors='replace')[-2000:]}")
        return done.stdout

    def run(self, launcher):
        self.fresh()
        log = self.work / "server.log"
        with open(log, "wb") as out:
            identity = {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []} if self.user else {}
            server = launcher.start(
                self.command(), self.work, self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, **identity
            )
        try:
            self._await_ready(server, log)
            begun = time.monotonic()
            self.load()
            self.load_s = time.monotonic() - begun
            data = self.data()
        finally:
            # hksim forwards the signal, waits for the server, and converts the recording.
            server.terminate()
            server.wait(LIMIT_S)
        if server.returncode != 0:
            raise RuntimeError(f"{self.name}: exit status {server.returncode}: {log.read_text(errors='replace')[-2000:]}")
        return hashlib.sha256(data).hexdigest()

    def _await_ready(self, server, log):
        for _ in range(600):
            if server.poll() is not None:
                break
            try:
                if self.ready():
                    return
            except (RuntimeError, OSError):
                pass
            time.sleep(0.1)
        raise RuntimeError(f"{self.name}: does not start: {log.read_text(errors='replace')[-2000:]}")


class Redis(LoadedServer):
    name, does = "redis-server", "redis-benchmark: 6 tests (set get incr lpush lpop sadd), 10000 requests each, 10 clients"
    tools = {"redis-server": "redis-server", "redis-benchmark": "redis-tools", "redis-cli": "redis-tools"}

    def prepare(self):
        self.port = free_port()

    def command(self):
        options = f"--port {self.port} --bind 127.0.0.1 --appendonly no --daemonize no --logfile redis.log --save"
        return ["redis-server", *options.split(), ""]

    def shown_command(self):
        return " ".join(self.command()).replace(str(self.port), "PORT").join([f"hksim record -o {self.name}.hkt -- ", "''"])

    def version(self):
        return f"Redis {first_line('redis-server', '--version').split('v=')[1].split()[0]}"

    def allocator(self):
        return first_line("redis-server", "--version").split("malloc=")[1].split()[0].replace("-", " ")

    def ask(self, *command):
        return self.client("redis-cli", "-p", str(self.port), *command)

    def ready(self):
        return self.ask("PING").strip() == b"PONG"

    def load(self):
        # Redis embeds small values in another block. At this data size, each value is a separate block.
        self.client(
            *f"redis-benchmark -h 127.0.0.1 -p {self.port} -q -n 10000 -c 10 -d 100 -t set,get,incr,lpush,lpop,sadd".split()
        )

    def data(self):
        # The keys, their values, and the number of calls of each command of the load.
        keys = sorted(self.ask("--scan").split())
        held = [key + b" " + self.ask("DUMP", key) for key in keys]
        calls = [
            line.split(b",")[0]
            for line in sorted(self.ask("INFO", "commandstats").splitlines())
            if line.split(b":")[0].split(b"_")[-1] in (b"set", b"get", b"incr", b"lpush", b"lpop", b"sadd")
        ]
        if len(keys) < 3 or len(calls) != 6:
            raise RuntimeError(f"{self.name}: keys {keys}, calls {calls}: not what the load should leave")
        return b"\n".join(held + calls)


class MariaDb(LoadedServer):
    name, does = "mariadbd", "mariadb-slap: 2400 queries by 4 clients; joins, groups, inserts, updates"
    tools = {"mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server", "mariadb-slap": "mariadb-client"}

    def prepare(self):
        self.identity = ["--user=root"] if os.getuid() == 0 else []
        self.make(
            *["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"],
            *[f"--datadir={self.work / 'fresh'}", *self.identity],
            stdout=subprocess.DEVNULL,
        )
        settings = (JOBS / "mariadb.cnf").read_text().replace("WORK", str(self.work))
        (self.work / "mariadb.cnf").write_text(settings)
        self.job("mariadb_tables.sql")
        self.job("mariadb_load.sql")

    def fresh(self):
        shutil.rmtree(self.work / "data", ignore_errors=True)
        shutil.copytree(self.work / "fresh", self.work / "data")

    def command(self):
        return ["mariadbd", "--defaults-file=mariadb.cnf", *self.identity]

    def version(self):
        return f"MariaDB {first_line('mariadbd', '--version').split('Ver ')[1].split('-')[0]}"

    def ask(self, *more, tool="mariadb"):
        return self.client(tool, "--no-defaults", f"--socket={self.work / 's'}", "--user=root", *more)

    def ready(self):
        return self.ask("--execute=SELECT 1") != b""

    def load(self):
        self.ask("--execute=CREATE DATABASE work")
        self.ask("work", "--execute=source mariadb_tables.sql")
        # --no-drop: the tables were created above and are kept.
        options = "--create-schema=work --no-drop --delimiter=; --query=mariadb_load.sql --concurrency=4"
        self.ask(*options.split(), "--number-of-queries=2400", tool="mariadb-slap")

    def data(self):
        queries = "SELECT * FROM item ORDER BY id; SELECT item, amount, COUNT(*) FROM sale GROUP BY 1, 2 ORDER BY 1, 2"
        return self.ask("work", f"--execute={queries}")


class Postgres(LoadedServer):
    name, does = "postgres-backend", "the process that serves pgbench's client: 3000 TPC-B-like transactions; forked, so some frees are of the parent's blocks"
    tools = {"pgbench": "postgresql", "psql": "postgresql"}

    def __init__(self, work):
        super().__init__(work)
        places = ["/usr/local/bin", *map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))]
        self.place = next((place for place in places if Path(place, "postgres").exists()), None)
        if os.getuid() == 0:
            self.user = next((name for name in ("postgres", "nobody") if _exists(name)), None)

    def missing(self):
        return super().missing() or (None if self.place else "missing: postgres (apt install postgresql)")

    def prepare(self):
        self.port = free_port()
        if self.user:
            shutil.chown(self.work, self.user)
        self.as_user(f"{self.place}/initdb", "-D", "fresh", "-U", "postgres", "-A", "trust", "--no-sync", "--locale=C")

    def as_user(self, *command):
        subprocess.run(command, cwd=self.work, env=ENVIRONMENT, check=True, user=self.user, capture_output=True)

    def fresh(self):
        self.as_user("rm", "-rf", "data")
        self.as_user("cp", "-a", "fresh", "data")

    def command(self):
        settings = "autovacuum=off fsync=off jit=off listen_addresses=127.0.0.1 unix_socket_directories="
        return [f"{self.place}/postgres", "-D", "data", "-p", str(self.port), *(f"-c{s}" for s in settings.split())]

    def shown_command(self):
        return f"hksim record -o {self.name}.hkt -- {' '.join(self.command())}".replace(str(self.port), "PORT")

    def version(self):
        return f"PostgreSQL {first_line(f'{self.place}/postgres', '--version').split()[2]}"

    def tool(self, name, *more):
        return self.client(name, "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", *more)

    def ready(self):
        return self.tool("psql", "-Atc", "SELECT 1", "postgres") != b""

    def load(self):
        self.tool("pgbench", "-i", "-q", "-s", "1", "--no-vacuum", "postgres")
        # Simple queries, each of which is parsed and planned separately.
        self.tool("pgbench", "-n", "-c", "1", "-t", "3000", "--random-seed=7", "-M", "simple", "postgres")

    def data(self):
        queries = ["SELECT * FROM pgbench_branches", "SELECT * FROM pgbench_tellers ORDER BY tid"]
        queries += ["SELECT aid, abalance FROM pgbench_accounts WHERE abalance <> 0 ORDER BY aid"]
        queries += ["SELECT tid, bid, aid, delta FROM pgbench_history ORDER BY 1, 2, 3, 4"]
        return b"\n".join(self.tool("psql", "-Atc", query, "postgres") for query in queries)


def _exists(user):
    try:
        return pwd.getpwnam(user) is not None
    except KeyError:
        return False
