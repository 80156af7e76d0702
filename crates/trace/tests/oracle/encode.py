"""Writes a random program in another tool's trace format: encode.py FORMAT SEED FILE

Prints the events that an import must yield, as one JSON array per event: [thread, kind, object, size, align_log2, call,
time_ns]. A value is null if the event or the format does not have it. Written from the formats' layouts, independently of
hksim's sources.
"""

import json
import random
import struct
import sys

PAGE = 12


class Program:
    """A random program: live blocks, whose addresses are reused after their free, and the expected events of a trace."""

    def __init__(self, seed, threads):
        self.random = random.Random(seed)
        self.threads = threads
        self.blocks = {}  # address: object
        self.dead_addresses, self.dead_objects = [], []
        self.addresses = self.objects = 0
        self.numbers = {}  # thread: number in the trace
        self.expected = []

    def event(self, thread, kind, object=None, size=None, align_log2=None, call=None, time_ns=None):
        number = self.numbers.setdefault(thread, len(self.numbers))
        self.expected.append([number, kind, object, size, align_log2, call, time_ns])

    def address(self):
        if self.dead_addresses and self.random.random() < 0.8:
            return self.dead_addresses.pop(self.random.randrange(len(self.dead_addresses)))
        self.addresses += 1
        return self.addresses

    def born(self, address):
        if not self.dead_objects:
            self.dead_objects.append(self.objects)
            self.objects += 1
        self.blocks[address] = self.dead_objects.pop()
        return self.blocks[address]

    def dies(self, address):
        object = self.blocks.pop(address)
        self.dead_objects.append(object)
        self.dead_addresses.append(address)
        return object

    def any_block(self):
        return self.random.choice(list(self.blocks))

    def size(self):
        return self.random.choice([0, 1, 8, 24, 100, 4000, 70_000, 1 << 33]) + 8 * self.random.randrange(20)

    def steps(self, count, kinds):
        """Yields (thread, kind) of `count` random steps. Frees and resizes occur only while there are blocks."""
        for _ in range(count):
            kind = self.random.choice(kinds)
            if kind in ("free", "realloc", "realloc-free") and not self.blocks:
                kind = kinds[0]
            yield self.random.randrange(self.threads), kind


def heaptrack(program, out):
    out.write(b"v 10400 3\nx 5 /a/bc\nX /a/bc with words\nI 1000 5e298d\nm 1 -\nm 5 /a/bc 400000 0 760\nt 1234 0\n")
    time_ns, start = 0, None
    for _, kind in program.steps(3000, ["malloc", "malloc", "free", "realloc", "tick", "other"]):
        start = time_ns if start is None and kind not in ("tick", "other") else start
        now = time_ns - (start or 0)

        def line(text):
            out.write(text.encode() + b"\n")

        def malloc(address):
            size = program.size()
            line(f"+ {size:x} {program.random.randrange(99):x} {address + 0x5500:x}")
            program.event(0, "alloc", program.born(address), size, 0, "malloc", now)

        def free(address):
            line(f"- {address + 0x5500:x}")
            program.event(0, "free", program.dies(address), time_ns=now)

        if kind == "malloc":
            malloc(program.address())
        elif kind == "free":
            free(program.any_block())
        elif kind == "realloc":
            new = program.address()
            free(program.any_block())
            malloc(new)
        elif kind == "tick":
            time_ns += 1_000_000 * program.random.randrange(40)
            line(f"c {time_ns // 1_000_000:x}")
        else:
            line(program.random.choice(["R 3e1", "t 4a 7", "m 1 -", "# comment"]))


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def protobuf(program, out):
    def line(kind, *numbers):
        fields = b"".join(varint(number << 3) + varint(value) for number, value in numbers if value is not None)
        call = varint(kind << 3 | 2) + varint(len(fields)) + fields
        out.write(varint(1 << 3 | 2) + varint(len(call)) + call)

    kinds = ["malloc", "malloc", "calloc", "aligned", "free", "free", "realloc", "realloc-null", "realloc-free", "null"]
    for _, kind in program.steps(4000, [*kinds, "failed"]):
        size = program.size()
        if kind in ("malloc", "aligned"):
            address = program.address()
            align = program.random.randrange(1, 12) if kind == "aligned" else 0
            line(1, (1, address - 1), (2, size or None), (3, 1 << align if align else None))
            call = "memalign" if align else "malloc"
            program.event(0, "alloc", program.born(address), size, align, call)
        elif kind == "calloc":
            address, count = program.address(), program.random.randrange(9)
            line(4, (1, address - 1), (2, count), (3, size))
            program.event(0, "alloc", program.born(address), size * count, 0, "calloc")
        elif kind == "free":
            address = program.any_block()
            line(2, (1, address - 1), (2, program.random.choice([None, 77])), (3, None))
            program.event(0, "free", program.dies(address))
        elif kind == "realloc":
            old = program.any_block()
            new = program.random.choice([old, program.address()])
            line(3, (1, new - 1), (2, old - 1), (3, size + 1))
            object = program.blocks.pop(old)
            if new != old:
                program.dead_addresses.append(old)
            program.blocks[new] = object
            program.event(0, "realloc", object, size + 1, None, "realloc")
        elif kind == "realloc-null":
            address = program.address()
            line(3, (1, address - 1), (3, size))
            program.event(0, "alloc", program.born(address), size, 0, "realloc")
        elif kind == "realloc-free":
            address = program.any_block()
            line(3, (2, address - 1), (3, 0))
            program.event(0, "realloc-free", program.dies(address), call="realloc")
        elif kind == "null":
            line(2)
            program.event(0, "free-null")
        else:
            line(1, (2, 1 << 60))
            program.event(0, "alloc-failed", None, 1 << 60, 0, "malloc")
    out.write(varint(2 << 3) + varint(program.objects))


def jemalloc_pa(program, out, preprocessed):
    if program.random.random() < 0.5:
        out.write(b"shard_ind,operation,size_or_alloc_index,nsecs,is_frequent\n" if preprocessed else b"shard,addr,nsecs,probe,size\n")
    time_ns, start, index, allocations = 10**15, None, {}, 0
    for shard, kind in program.steps(3000, ["malloc", "malloc", "free"]):
        time_ns += program.random.randrange(5000)
        start = time_ns if start is None else start
        size = 4096 * program.random.randrange(1, 600)
        if kind == "malloc":
            address = program.address()
            index[address], allocations = allocations, allocations + 1
            program.event(shard, "alloc", program.born(address), size, PAGE, "memalign", time_ns - start)
            line = f"{shard},0,{size},{time_ns},1" if preprocessed else f"{shard},{address << 12:#x},{time_ns},hpa_alloc,{size}"
        else:
            address = program.any_block()
            program.event(shard, "free", program.dies(address), time_ns=time_ns - start)
            line = f"{shard},1,{index[address]},{time_ns},0" if preprocessed else f"{shard},{address << 12:#x},{time_ns},hpa_dalloc,4096"
        out.write(line.encode() + b"\n")


def memray(program, out, native):
    def text(words):
        return words.encode() + b"\0"

    def signed(value):
        return varint(value << 1 if value >= 0 else (-value << 1) - 1)

    def pointer(address):
        """The index among the recent addresses, and the bytes that follow if the address is not one of them."""
        nonlocal last
        if address in recent:
            return recent.index(address), b""
        step, last = (address >> 3) - last, address >> 3
        recent.insert(0, address)
        del recent[15:]
        return 15, signed(step)

    def call(thread, number, address, size=None):
        nonlocal current
        if thread != current:
            current = thread
            out.write(b"\x0c" + struct.pack("<Q", 0x7F00_0000_0700 + thread))
        place, step = pointer(0x7000_0000_0000 + 64 * address)
        out.write(bytes([128 | place << 3 | (number if number < 8 else 0)]) + step)
        out.write(b"" if number < 8 else bytes([number]))
        if size is not None:
            out.write((signed(program.random.randrange(-9, 9)) if native else b"") + varint(size))

    def other(kind):
        if kind == "frame":
            out.write(bytes([64 | program.random.randrange(2)]) + varint(program.random.randrange(999)) + signed(-7))
            out.write(bytes([16 + program.random.randrange(16)]))
        elif kind == "code":
            out.write(b"\x0e" + varint(77) + text("run") + text("app.py") + signed(5) + varint(3) + b"\xff\0\x80")
        elif kind == "images":
            out.write(b"\x06\x07" + text("libapp.so") + varint(1) + struct.pack("<Q", 1 << 40))
            out.write(b"\x08" + struct.pack("<Q", 4096) + varint(1 << 20))
        elif kind == "object":
            made = program.random.randrange(2)
            place, step = pointer(0x7000_0000_0000 + 8 * program.random.randrange(1000))
            out.write(bytes([32 | place << 1 | made]) + step + (signed(1) if native and made else b""))
        else:
            out.write(program.random.choice([b"\0", b"\x0a" + text("worker"), b"\x05" + signed(1 << 41) + signed(1)]))

    out.write(b"memray\0" + struct.pack("<ii??4q", 13, 0x030B07F0, native, False, 1, 2, 3, 4) + text("app.py -x"))
    out.write(struct.pack("<iQQB??", 77, 1, 0, 1, True, True) + text("/lib/python") + text("/a") + text("") + text("/b"))
    out.write(text("/c") + text(""))
    numbers = {"malloc": 6, "calloc": 8, "posix_memalign": 9, "aligned_alloc": 10, "memalign": 11, "valloc": 12, "pvalloc": 13}
    last, recent, current, time_ms, start = 0, [], None, 0, None
    others = ["frame", "code", "images", "object", "other", "tick"]
    for thread, kind in program.steps(3000, [*numbers, "malloc", "free", "free", "free", "realloc", *others]):
        if kind == "tick":
            time_ms += program.random.randrange(40)
            out.write(b"\x02" + varint(1 << 30) + varint(time_ms))
        elif kind in others:
            other(kind)
        else:
            start = time_ms if start is None else start
            now = (time_ms - start) * 1_000_000
            if kind in ("free", "realloc"):
                address = program.any_block()
                new = program.address()
                call(thread, program.random.choice([1, 5]), address)
                program.event(thread, "free", program.dies(address), time_ns=now)
                if kind == "free":
                    program.dead_addresses.append(new)
                    continue
                number, name = program.random.choice([4, 7]), "realloc"
            else:
                new, number, name = program.address(), numbers[kind], kind
                number = program.random.choice([number, {6: 2, 8: 3}.get(number, number)])
            size = program.size()
            call(thread, number, new, size)
            align = PAGE if kind in ("valloc", "pvalloc") else 0
            program.event(thread, "alloc", program.born(new), size, align, name, now)
    out.write(b"\x01")


ENCODERS = {
    "heaptrack": (heaptrack, 1),
    "protobuf": (protobuf, 1),
    "jemalloc-pa": (lambda program, out: jemalloc_pa(program, out, False), 3),
    "jemalloc-pa-preprocessed": (lambda program, out: jemalloc_pa(program, out, True), 3),
    "memray": (lambda program, out: memray(program, out, False), 3),
    "memray-native": (lambda program, out: memray(program, out, True), 3),
}


def main():
    encode, threads = ENCODERS[sys.argv[1]]
    program = Program(int(sys.argv[2]), threads)
    with open(sys.argv[3], "wb") as out:
        encode(program, out)
    for event in program.expected:
        print(json.dumps(event))


main()
