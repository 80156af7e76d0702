#!/usr/bin/env python3
"""Latency of redis-server while hksim looks at it, and without: one client, one run, windows in random order.

    cargo build --release -p hksim && tools/attach-programs/latency.py target/release/hksim [--seconds 60] [--keys 300000]

Three kinds of windows of two seconds: nothing, nothing again (the method's own error), and `hksim inspect PID` over and over; then
`record --memory -p` and `record -p`, of which each window has one. Prints Markdown: quantiles of a GET's round trip in microseconds. redis
listens on loopback only.
"""

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import time

PORT = 7397
WINDOW_S = 2.0
FILL = "for i=1,ARGV[1] do redis.call('set','key:'..i,string.rep('x',100+i%900)) end"


def request(*words):
    return b"".join([b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)])


class Client:
    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", PORT))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, *words):
        """The seconds that a request took until its whole answer was there."""
        began = time.perf_counter()
        self.socket.sendall(request(*words))
        answer = self.socket.recv(65536)
        if answer[:1] == b"$":
            head, _, _ = answer.partition(b"\r\n")
            bytes_of_value = int(head[1:])
            # A missing value is -1, without an end.
            whole = len(head) + 2 + (bytes_of_value + 2 if bytes_of_value >= 0 else 0)
            while len(answer) < whole:
                answer += self.socket.recv(65536)
        return time.perf_counter() - began


def window(client, draw, keys):
    """Latencies of as many requests as fit into a window."""
    until, found = time.perf_counter() + WINDOW_S, []
    while time.perf_counter() < until:
        found.append(client.call(b"GET", b"key:%d" % draw.randint(1, keys)))
    return found


def looking(hksim, kind, pid, folder):
    """The command that runs during a window."""
    number = len(os.listdir(folder))
    commands = {
        "inspect": f"while :; do {hksim} inspect {pid} >/dev/null; done",
        "record --memory -p": f"{hksim} record -q --memory -p {pid} --duration {WINDOW_S:g}s -o {folder}/{number}.hkm",
        "record -p": f"{hksim} record -q -p {pid} --duration {WINDOW_S:g}s -o {folder}/{number}.hkt",
    }
    if kind not in commands:
        return None
    return subprocess.Popen(["sh", "-c", commands[kind]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def quantile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hksim")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    hksim, draw = os.path.realpath(arguments.hksim), random.Random(arguments.seed)
    kinds = ["nothing", "nothing again", "inspect", "record --memory -p", "record -p"]
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(["redis-server", "--port", str(PORT), "--bind", "127.0.0.1", "--save", "", "--dir", folder], stdout=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            client = Client()
            client.call(b"EVAL", FILL.encode(), b"0", b"%d" % arguments.keys)
            with open(f"/proc/{server.pid}/statm", encoding="ascii") as statm:
                resident = int(statm.read().split()[1]) * 4096 >> 20
            found = {kind: [] for kind in kinds}
            for _ in range(max(int(arguments.seconds / WINDOW_S / len(kinds)), 1)):
                for kind in draw.sample(kinds, len(kinds)):
                    command = looking(hksim, kind, server.pid, folder)
                    found[kind] += window(client, draw, arguments.keys)
                    if command:
                        if kind == "inspect":
                            os.killpg(command.pid, 15)
                        said = command.communicate()[1].decode()
                        if kind != "inspect" and command.returncode:
                            sys.exit(f"{kind}: {said}")
        finally:
            server.terminate()
            server.wait()
    print(f"redis-server of {resident} MiB, seed {arguments.seed}; microseconds of a GET:\n")
    print("| Meanwhile | Requests | median | p90 | p99 | p99.9 | longest |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for kind, seconds in found.items():
        shares = [quantile(seconds, share) for share in (0.5, 0.9, 0.99, 0.999)] + [max(seconds)]
        print(f"| {kind} | {len(seconds)} | {' | '.join(f'{1e6 * one:.0f}' for one in shares)} |")


if __name__ == "__main__":
    main()
