"""Counts the calls of a text trace, as an oracle for the importers: reads nothing of ours.

usage: count_calls.py script|android FILE
"""

import collections
import json
import lzma
import sys
import zipfile


def text(path):
    if path.endswith(".xz"):
        return lzma.open(path, "rt").read()
    if path.endswith(".zip"):
        archive = zipfile.ZipFile(path)
        return archive.read(archive.namelist()[0]).decode()
    return open(path).read()


class Heap:
    def __init__(self):
        self.counts = collections.Counter()
        self.live = {}
        self.bytes = self.bytes_peak = self.objects_peak = 0
        self.sizes = []
        self.threads = set()

    def put(self, key, size, maker):
        self.live[key] = (size, maker)
        self.bytes += size
        self.sizes.append(size)
        self.bytes_peak = max(self.bytes_peak, self.bytes)
        self.objects_peak = max(self.objects_peak, len(self.live))

    def drop(self, key, by=None):
        size, maker = self.live.pop(key)
        self.bytes -= size
        if by is not None and by != maker:
            self.counts["cross_thread_frees"] += 1
        return maker

    def report(self):
        ordered = sorted(self.sizes)
        rank = lambda percent: ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0
        names = "events mallocs callocs reallocs aligned frees free_null cross_thread_frees unknown_frees failed"
        result = {name: self.counts[name] for name in names.split()}
        result.update(
            threads=len(self.threads),
            live_bytes_peak=self.bytes_peak,
            live_objects_peak=self.objects_peak,
            live_objects_end=len(self.live),
            sizes={"p50": rank(50), "p90": rank(90), "p99": rank(99), "max": rank(100)},
        )
        return result


def script(lines):
    heap = Heap()
    for line in lines:
        words = line.split("#")[0].split()
        if not words:
            continue
        heap.counts["events"] += 1
        heap.threads.add(0)
        op, key = words[0], words[1]
        if op == "a":
            heap.counts["mallocs"] += 1
            heap.put(key, int(words[2]), 0)
        elif op == "r":
            heap.counts["reallocs"] += 1
            if key in heap.live:
                heap.drop(key)
            else:
                heap.counts["unknown_frees"] += 1
            heap.put(key, int(words[2]), 0)
        else:
            heap.counts["frees"] += 1
            if key in heap.live:
                heap.drop(key)
            else:
                heap.counts["unknown_frees"] += 1
    return heap.report()


def android(lines):
    heap = Heap()
    for line in lines:
        tid, rest = line.split(":")
        op, pointer, *numbers = rest.split()
        pointer = int(pointer, 16)
        heap.threads.add(tid)
        heap.counts["events"] += 1
        if op == "realloc":
            old, size = int(numbers[0], 16), int(numbers[1])
            heap.counts["reallocs"] += 1
            if old == 0:
                heap.put(pointer, size, tid)
            elif pointer == 0 and size == 0:
                heap.drop(old, tid)
            elif pointer == 0:
                heap.counts["failed"] += 1
            else:
                maker = heap.drop(old)
                heap.put(pointer, size, maker)
        elif op == "free":
            heap.counts["frees" if pointer else "free_null"] += 1
            if pointer in heap.live:
                heap.drop(pointer, tid)
            elif pointer:
                heap.counts["unknown_frees"] += 1
        elif op != "thread_done":
            numbers = [int(number) for number in numbers]
            name, size = {
                "malloc": lambda: ("mallocs", numbers[0]),
                "calloc": lambda: ("callocs", numbers[0] * numbers[1]),
                "memalign": lambda: ("aligned", numbers[1]),
            }[op]()
            heap.counts[name] += 1
            if pointer:
                heap.put(pointer, size, tid)
            else:
                heap.counts["failed"] += 1
    return heap.report()


if __name__ == "__main__":
    lines = [line for line in text(sys.argv[2]).splitlines() if line.strip()]
    print(json.dumps({"script": script, "android": android}[sys.argv[1]](lines)))
