"""Counts the calls in other programs' text traces, as an oracle for the importers. Uses no code or file of hksim.

usage: counts.py FORMAT FILE [PID]

FILE may be plain, xz, gz, bz2 or a zip archive with one member. Prints the figures of `hksim info` as JSON. "quality" contains
the counters that only some formats have.
"""

import bz2
import collections
import gzip
import json
import lzma
import re
import sys
import zipfile

PAGE = 4096


def lines_of(path):
    data = open(path, "rb").read()
    if data[:4] == b"PK\x03\x04":
        archive = zipfile.ZipFile(path)
        data = archive.read(archive.namelist()[0])
    for magic, opened in ((b"\x1f\x8b", gzip), (b"BZh", bz2), (b"\xfd7zXZ", lzma)):
        if data.startswith(magic):
            data = opened.decompress(data)
    return [line.strip() for line in data.decode("utf-8", "replace").split("\n") if line.strip()]


class Heap:
    """Live blocks by address, and counters."""

    def __init__(self):
        self.counts = collections.Counter()
        self.quality = collections.Counter()
        self.live = {}
        self.bytes = self.bytes_peak = self.objects_peak = 0
        self.sizes = []
        self.threads = set()

    def put(self, key, size, maker):
        if key in self.live:
            self.quality["frees_inserted"] += 1
            self.counts["frees"] += 1
            self.counts["events"] += 1
            self.drop(key)
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

    def alloc(self, kind, tid, size, address):
        self.event(tid)
        self.counts[kind] += 1
        if address:
            self.put(address, size, tid)
        else:
            self.counts["requests_failed"] += 1

    def free(self, tid, address):
        self.event(tid)
        self.counts["frees" if address else "frees_null"] += 1
        if address in self.live:
            self.drop(address, tid)
        elif address:
            self.counts["unknown_frees"] += 1

    def realloc(self, tid, old, size, new):
        if old == 0:
            return self.alloc("reallocs", tid, size, new)
        if old not in self.live:
            if new == 0 and size == 0:
                return self.free(tid, old)
            if new:
                self.counts["unknown_frees"] += 1
            return self.alloc("reallocs", tid, size, new)
        self.event(tid)
        self.counts["reallocs"] += 1
        if new == 0 and size == 0:
            self.drop(old, tid)
        elif new == 0:
            self.counts["requests_failed"] += 1
        else:
            self.put(new, max(size, 1), self.drop(old))

    def usable_size(self, tid, address):
        if address in self.live:
            self.event(tid)
            self.counts["usable_size_calls"] += 1
        elif address:
            self.quality["unknown_uses_dropped"] += 1

    def event(self, tid):
        self.threads.add(tid)
        self.counts["events"] += 1

    def call(self, tid, name, numbers, result):
        """Performs a C call. For posix_memalign, `numbers` are alignment and size, and `result` is the block."""
        if name in ("free", "cfree") or name.startswith(("_ZdlPv", "_ZdaPv")):
            self.free(tid, numbers[0])
        elif name in ("malloc", "_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t"):
            self.alloc("mallocs", tid, numbers[0], result)
        elif name == "calloc":
            self.alloc("callocs", tid, numbers[0] * numbers[1], result)
        elif name == "realloc":
            self.realloc(tid, numbers[0], numbers[1], result)
        elif name == "reallocarray":
            self.realloc(tid, numbers[0], numbers[1] * numbers[2], result)
        elif name in ("valloc", "pvalloc"):
            self.alloc("aligned_allocs", tid, numbers[0], result)
        elif name in ("posix_memalign", "aligned_alloc", "memalign"):
            self.alloc("aligned_allocs", tid, numbers[1], result)
        elif "St11align_val_t" in name:
            self.alloc("aligned_allocs", tid, numbers[0], result)
        elif name == "malloc_usable_size":
            self.usable_size(tid, numbers[0])
        else:
            raise ValueError(name)

    def report(self):
        ordered = sorted(self.sizes)
        rank = lambda percent: ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0
        names = "events mallocs callocs reallocs aligned_allocs frees frees_null cross_thread_frees unknown_frees requests_failed"
        result = {name: self.counts[name] for name in names.split() + ["usable_size_calls"]}
        result.update(
            threads=len(self.threads),
            live_bytes_peak=self.bytes_peak,
            live_objects_peak=self.objects_peak,
            live_objects_end=len(self.live),
            size_bytes={"p50": rank(50), "p90": rank(90), "p99": rank(99), "max": rank(100)},
            quality=dict(self.quality),
        )
        return result


FUNCTIONS = (
    "malloc|calloc|realloc|reallocarray|posix_memalign|aligned_alloc|memalign|valloc|pvalloc|malloc_usable_size"
    "|free|cfree|_Zn[wa]m\\w*|_Zd[la]Pv\\w*"
)
TAKES = {"calloc": 2, "realloc": 2, "reallocarray": 3, "posix_memalign": 2, "aligned_alloc": 2, "memalign": 2}


def integer(word):
    word = word.strip()
    return 0 if word in ("(nil)", "nil", "NULL", "<void>") else int(word, 0) % 2**64


def script(heap, lines, _pid):
    for line in lines:
        words = line.split("#")[0].split()
        if not words:
            continue
        key = int(words[1]) + 1
        if words[0] == "a":
            heap.alloc("mallocs", 0, int(words[2]), key)
        elif words[0] == "r":
            size = int(words[2])
            heap.realloc(0, key, size, key if size else 0)
        else:
            heap.free(0, key)


def rep(heap, lines, pid):
    script(heap, lines[4:], pid)


def wee(heap, lines, _pid):
    made = 0
    for line in lines:
        name, number = re.fullmatch(r"(Alloc|Free)\((\d+)\),?", line).groups()
        if name == "Alloc":
            made += 1
            heap.alloc("mallocs", 0, int(number), made)
        else:
            heap.free(0, int(number) + 1)


def android(heap, lines, _pid):
    for line in lines:
        tid, rest = line.split(":")
        op, pointer, *numbers = rest.split()
        pointer = int(pointer, 16)
        if op == "realloc":
            heap.realloc(tid, int(numbers[0], 16), int(numbers[1]), pointer)
        elif op == "thread_done":
            heap.event(tid)
        else:
            heap.call(tid, op, [pointer] if op == "free" else [int(number) for number in numbers], pointer)


def logalloc(heap, lines, pid):
    taken = pid
    for line in lines:
        process, tid, name, numbers, result = re.fullmatch(r"(\d+) (\d+) (\w+)\((.*?)\)(?:=(.*))?", line).groups()
        if name == "jemalloc_stats":
            heap.quality["unrecognised_lines"] += 1
            continue
        taken = taken or process
        if process != taken:
            heap.quality["other_process_events"] += 1
            continue
        value = lambda word: integer(word.strip().lstrip("#"))
        heap.call(tid, name, [value(word) for word in numbers.split(",")], value(result or "0"))


def mtrace(heap, lines, _pid):
    old = None
    for line in lines:
        if line in ("= Start", "= End"):
            continue
        op, rest = re.fullmatch(r"(?:@ .* )?([-+<>!]) (\S+(?: \S+)?)", line).groups()
        numbers = [integer(word) for word in rest.split()]
        if op == "+":
            heap.alloc("mallocs", 0, numbers[1], numbers[0])
        elif op == "-":
            heap.free(0, numbers[0])
        elif op == "<":
            old = numbers[0]
        elif op == ">":
            heap.realloc(0, old, numbers[1], numbers[0])
        else:
            heap.realloc(0, numbers[0], numbers[1], 0)


def valgrind(heap, lines, pid):
    """Joins lines that belong together, then parses the calls."""
    taken = pid
    texts = []
    for line in lines:
        found = re.search(r"--(?:[\d:.]+ )?(\d+)-- +(.*)", line)
        if not found:
            heap.quality["unrecognised_lines"] += 1
            continue
        process, text = found.groups()
        if text.startswith("="):
            if process == taken:
                texts[-1] = re.sub(r"Argument '.*", "", texts[-1]) + " " + text
            continue
        if not re.match(rf"({FUNCTIONS})\(", text):
            heap.quality["unrecognised_lines"] += 1
            continue
        taken = taken or process
        if process == taken:
            texts.append(text)
        else:
            heap.quality["other_process_events"] += 1
    for text in texts:
        result = re.search(r" = (\S+)$", text)
        calls = re.findall(rf"({FUNCTIONS})\((.*?)\)", text)
        numbers = [[integer(word.split()[-1]) for word in found.split(",")] for _, found in calls]
        name = calls[0][0]
        if len(calls) > 1 and name == "calloc":
            heap.call(0, name, numbers[0], 0)
            heap.call(0, calls[1][0], numbers[1], integer(result[1]) if result else 0)
            continue
        heap.quality["nested_calls"] += len(calls) - 1
        heap.call(0, name, numbers[0], integer(result[1]) if result and name != "free" else 0)


def lttng(heap, lines, pid):
    taken = pid
    for line in lines:
        lost = re.search(r"discarded (\d+) event", line)
        if lost:
            heap.quality["events_lost"] += int(lost[1])
            continue
        found = re.search(r" lttng_ust_libc:(\w+): (.*)", line)
        if not found:
            heap.quality["unrecognised_lines"] += 1
            continue
        name = found[1]
        fields = {key: integer(value) for key, value in re.findall(r"(\w+) = (\w+)", found[2])}
        taken = taken or fields["vpid"]
        if fields["vpid"] != int(taken):
            heap.quality["other_process_events"] += 1
            continue
        order = {
            "malloc": ["size"],
            "calloc": ["nmemb", "size"],
            "realloc": ["in_ptr", "size"],
            "memalign": ["alignment", "size"],
            "posix_memalign": ["alignment", "size"],
            "free": ["ptr"],
        }[name]
        block = fields["out_ptr"] * (fields["result"] == 0) if name == "posix_memalign" else fields["ptr"]
        heap.call(fields["vtid"], name, [fields[key] for key in order], block)


def bpftrace(heap, lines, _pid):
    for line in lines:
        if lost := re.fullmatch(r"Lost (\d+) events", line):
            heap.quality["events_lost"] += int(lost[1])
        elif nested := re.fullmatch(r"@nested: (\d+)", line):
            heap.quality["nested_calls"] += int(nested[1])
    found = (re.fullmatch(rf"(\d+) (\d+) (?:({FUNCTIONS})\((.*?)\)(?:=(\w+))?|exit)", line) for line in lines)
    calls = [call for call in found if call]
    for call in sorted(calls, key=lambda call: int(call[1])):
        if call[3]:
            numbers = [integer(word) for word in call[4].split(",")]
            heap.call(call[2], call[3], numbers, integer(call[5] or "0"))
        else:
            heap.event(call[2])


PERF = re.compile(r"(?:(\d+)/)?(\d+)(?: +\[\d+\])? +[\d.]+: +probe_\w+:(\w+?)(__return)?: +\([^)]*\) *(.*)$")


def perf(heap, lines, pid):
    """Keeps one open call for each thread. Blocks of posix_memalign have a number until a free shows their address."""
    calls, unseen = {}, []

    def shown(address):
        fits = [align for align, _ in unseen if address and address not in heap.live and address % align == 0]
        if not fits:
            return address
        heap.quality["addresses_guessed"] += 1
        return unseen.pop([align for align, _ in unseen].index(max(fits)))[1]

    for line in lines:
        found = PERF.search(line)
        if not found:
            heap.quality["unrecognised_lines"] += 1
            continue
        process, tid, name, returns, fields = found.groups()
        pid = pid or process
        if process != pid:
            heap.quality["other_process_events"] += 1
            continue
        numbers = [int(field.split("=")[1], 0) for field in fields.split()]
        inside = calls.get(tid)
        if returns:
            if inside is None or inside[0] != name:
                continue
            numbers, result = calls.pop(tid)[1], numbers[0]
            if name == "posix_memalign":
                made = 0 if result else f"unseen {len(unseen)} {line}"
                if made:
                    unseen.append((numbers[1], made))
                heap.call(tid, name, numbers[1:], made)
                continue
            if name.startswith("realloc"):
                numbers = [shown(numbers[0])] + numbers[1:]
            heap.call(tid, name, numbers, result)
        elif inside is None and name == "free":
            heap.call(tid, name, [shown(numbers[0])], 0)
        elif inside is None:
            calls[tid] = (name, numbers)
        elif inside != (name, numbers):
            heap.quality["nested_calls"] += 1


class Ltrace:
    """A stack of open calls for each thread. Blocks of posix_memalign have a number until a free shows their address."""

    HALF = re.compile(rf"^(?:[^(]*[ >])?({FUNCTIONS})(?:@\S+?)?\((.*?) *<(unfinished|no return) \.\.\.>$")
    WHOLE = re.compile(rf"^(?:[^(]*[ >])?({FUNCTIONS})(?:@\S+?)?\((.*)\) *= (\S+)(?: <[\d.]+>)?$")
    RESUMED = re.compile(rf"<\.\.\. ({FUNCTIONS}) resumed> .*= (\S+)(?: <[\d.]+>)?$")

    def __init__(self, heap):
        self.heap = heap
        self.stacks = collections.defaultdict(list)
        self.unseen = []
        self.made = 0

    def line(self, line):
        tid = re.match(r"(?:.*\[pid (\d+)\]|(\d+) )", line)
        tid = (tid[1] or tid[2]) if tid else "0"
        stack = self.stacks[tid]
        if found := self.HALF.search(line):
            # ltrace prints "no return" when any thread ends. The call may still be resumed later.
            name, numbers, _ = found.groups()
            if name == "free" and not stack:
                self.take(tid, name, numbers, "<void>")
            stack.append((name, numbers))
        elif found := self.WHOLE.search(line):
            self.outermost(tid, stack, *found.groups())
        elif found := self.RESUMED.search(line):
            while stack[-1][0] != found[1]:
                stack.pop()
                self.heap.quality["unfinished_calls"] += 1
            name, numbers = stack.pop()
            if name != "free" or stack:
                self.outermost(tid, stack, name, numbers, found[2])
        elif "+++ " in line:
            self.heap.event(tid)
            self.unfinished(stack)
            stack.clear()
        else:
            self.heap.quality["unrecognised_lines"] += 1

    def unfinished(self, stack):
        taken = bool(stack) and stack[0][0] == "free"
        self.heap.quality["unfinished_calls"] += len(stack) - taken

    def outermost(self, tid, stack, name, numbers, result):
        if stack:
            self.heap.quality["nested_calls"] += 1
        else:
            self.take(tid, name, numbers, result)

    def take(self, tid, name, numbers, result):
        words, result = numbers.split(","), integer(result)
        if name == "posix_memalign":
            align, size = integer(words[1]), integer(words[2])
            self.made += 1
            if result == 0:
                self.unseen.append((align, f"unseen {self.made}"))
            self.heap.alloc("aligned_allocs", tid, size, 0 if result else f"unseen {self.made}")
            return
        numbers = [integer(word) for word in words[: TAKES.get(name, 2 if "align_val" in name else 1)]]
        if name in ("free", "realloc", "reallocarray") or name.startswith("_Zd"):
            numbers[0] = self.shown(numbers[0])
        self.heap.call(tid, name, numbers, result)

    def shown(self, address):
        """The block for an unknown address: the most aligned of the blocks whose alignment fits, and of these the oldest."""
        fits = [align for align, _ in self.unseen if address and address not in self.heap.live and address % align == 0]
        if not fits:
            return address
        at = [align for align, _ in self.unseen].index(max(fits))
        self.heap.quality["addresses_guessed"] += 1
        return self.unseen.pop(at)[1]


def ltrace(heap, lines, _pid):
    reader = Ltrace(heap)
    for line in lines:
        reader.line(line)
    for stack in reader.stacks.values():
        reader.unfinished(stack)


if __name__ == "__main__":
    heap = Heap()
    kept = [line for line in lines_of(sys.argv[2]) if not line.startswith("#")]
    globals()[sys.argv[1]](heap, kept, sys.argv[3] if len(sys.argv) > 3 else None)
    print(json.dumps(heap.report()))
