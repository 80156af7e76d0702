"""Compares the faults of another allocator in `hksim replay --on` with those of a C program that makes the same calls.

    python3 benches/compare_fresh.py HKSIM TRACE.hkt [glibc|LIB.so ...]

The program shares only the exported table of calls with hksim. It writes every byte once, as `--touch all` does.
"""

import csv
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile

RUNS = 3
CALLS = {"malloc": 0, "calloc": 1, "realloc": 2, "reallocarray": 2, "posix-memalign": 3, "aligned-alloc": 3, "memalign": 3}
PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
struct call { uint8_t op, align_log2; uint16_t unused; uint32_t object; uint64_t bytes; };
struct block { void *at; uint64_t bytes; };
int main(int count, char **words) {
    if (count != 2) return 1;
    int file = open(words[1], O_RDONLY);
    struct stat size;
    if (file < 0 || fstat(file, &size)) return 1;
    struct call *calls = mmap(0, size.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    size_t calls_total = size.st_size / sizeof *calls;
    uint32_t objects = 0;
    for (size_t i = 0; i < calls_total; i++) if (calls[i].object >= objects) objects = calls[i].object + 1;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    struct block *blocks = mmap(0, objects * sizeof *blocks, PROT_READ | PROT_WRITE, flags, -1, 0);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (size_t i = 0; i < calls_total; i++) {
        struct call *call = &calls[i];
        struct block *block = &blocks[call->object];
        void *at = 0;
        uint64_t from = 0;
        switch (call->op) {
        case 0: at = malloc(call->bytes); break;
        case 1: at = calloc(1, call->bytes); break;
        case 2: at = realloc(0, call->bytes); break;
        case 3: if (posix_memalign(&at, 1ul << call->align_log2, call->bytes)) at = 0; break;
        case 10: free(block->at); continue;
        default: from = block->bytes; at = realloc(block->at, call->bytes);
        }
        *block = (struct block){at, call->bytes};
        if (at && call->bytes > from) memset((char *)at + from, 0xA5, call->bytes - from);
    }
    getrusage(RUSAGE_SELF, &after);
    char text[24];
    int end = sizeof text;
    for (long faults = after.ru_minflt - before.ru_minflt; end == sizeof text || faults; faults /= 10)
        text[--end] = '0' + faults % 10;
    return write(1, text + end, sizeof text - end) < 0;
}
"""


def calls(table, path):
    with open(table) as rows, open(path, "wb") as out:
        for row in csv.DictReader(rows):
            kind = {"alloc": CALLS.get(row["call"]), "free": 10, "realloc-free": 10, "realloc": 11}.get(row["op"])
            if kind is not None:
                size, align = int(row["size"] or 0), int(row["align_log2"] or 0)
                out.write(struct.pack("<BBHIQ", kind, align, 0, int(row["object"]), size))


def main(hksim, trace, *allocators):
    with tempfile.TemporaryDirectory() as folder:
        program, table, binary = (os.path.join(folder, name) for name in ("play", "calls.csv", "calls"))
        subprocess.run(["cc", "-O1", "-fno-builtin", "-w", "-x", "c", "-", "-o", program], input=PROGRAM, text=True, check=True)
        subprocess.run([hksim, "export", trace, "--to", "csv", "-o", table], check=True, stderr=subprocess.DEVNULL)
        calls(table, binary)
        for allocator in allocators or ["glibc"]:
            environment = dict(os.environ) if allocator == "glibc" else dict(os.environ, LD_PRELOAD=allocator)
            fresh = [int(subprocess.check_output([program, binary], env=environment)) for _ in range(RUNS)]
            words = [hksim, "replay", trace, "--on", allocator, "--touch", "all", "--format", "json"]
            replayed = [json.loads(subprocess.check_output(words))["faults"] for _ in range(RUNS)]
            fresh, replayed = statistics.median(fresh), statistics.median(replayed)
            print(f"{allocator}: program {fresh}, replay {replayed}, {100 * (replayed - fresh) / fresh:+.1f} %")


if __name__ == "__main__":
    main(*sys.argv[1:])
