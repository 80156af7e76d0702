"""Uses a server in one fixed way: `client.py probe|memcached|redis|redis-fork|http PORT`. One connection, so the server's work repeats itself."""

import random
import socket
import sys
import time

kind, port = sys.argv[1], int(sys.argv[2])
draw = random.Random(7)


def connect():
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def memcached():
    with connect() as server, server.makefile("rb") as answers:
        for number in range(12000):
            value = b"v" * draw.choice([20, 100, 500, 1500, 9000])
            server.sendall(b"set k%d 0 0 %d\r\n%s\r\n" % (draw.randrange(6000), len(value), value))
            answers.readline()
            if number % 5 == 0:
                server.sendall(b"delete k%d\r\n" % draw.randrange(6000))
                answers.readline()


def redis(saves):
    def call(*words):
        server.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
        return answers.readline()

    with connect() as server, server.makefile("rb") as answers:
        for number in range(15000):
            call(b"SET", b"k%d" % draw.randrange(8000), b"v" * draw.choice([20, 200, 1200]))
            if number % 3 == 0:
                call(b"RPUSH", b"l%d" % draw.randrange(50), b"w" * 60)
            if saves and number == 9000:
                call(b"BGSAVE")
        if saves:
            time.sleep(1)


def http():
    for _ in range(60):
        with connect() as server:
            server.sendall(b"GET /text HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n")
            while server.recv(65536):
                pass


if kind == "probe":
    connect().close()
elif kind == "memcached":
    memcached()
elif kind == "http":
    http()
else:
    redis(kind == "redis-fork")
