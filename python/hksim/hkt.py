"""An independent reader of .hkt traces, versions 1 to 4, implemented only from docs/reference/trace-format.md. Needs the package
`zstandard`.

    for event in Trace("app.hkt"): print(event)

An event is a tuple (time_ns, thread, name, {field: value}); an unknown call site is 0. As a program, prints one JSON array per event.
"""

import json
import struct
import sys
import zlib

import zstandard

MAGIC = b"\x89HKT\r\n\x1a\n"
SECTION = struct.Struct("<4sIIIQIIQII")
CALLS = "malloc calloc realloc reallocarray posix_memalign aligned_alloc memalign valloc pvalloc".split()
INITIAL_TOUCHES = ["none", "first", "all", "watched", "read", "read-then-write"]
POLICIES = ["thp-disable", "mlockall", "personality"]
NAMES = {
    6: "free", 7: "alloc", 8: "realloc", 9: "realloc_free", 10: "realloc_unknown", 11: "free_null",
    12: "free_unknown", 13: "usable_size", 14: "alloc_failed", 15: "realloc_failed", 16: "thread_start",
    17: "thread_exit", 18: "fork", 19: "exec", 20: "mark", 21: "read", 22: "write",
    23: "memory_policy", 24: "fork_end",
}
SIZE, OBJECT, DETAIL, NUMBER, OFFSET = "size object detail number offset".split()
TAKES = {
    6: [OBJECT], 7: [SIZE, DETAIL], 8: [SIZE, OBJECT, DETAIL], 9: [OBJECT, DETAIL], 10: [SIZE, DETAIL],
    13: [OBJECT], 14: [SIZE, DETAIL], 15: [SIZE, OBJECT, DETAIL], 18: [NUMBER], 20: [NUMBER],
    21: [OBJECT, NUMBER, OFFSET], 22: [OBJECT, NUMBER, OFFSET], 23: [DETAIL, NUMBER], 24: [DETAIL, NUMBER],
}  # fmt: skip


class Input:
    """Bytes that are consumed from the front."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        taken = self.data[self.at : self.at + count]
        if len(taken) < count:
            raise ValueError("a column ends early")
        self.at += count
        return taken

    def u16(self):
        return int.from_bytes(self.take(2), "little")

    def plane(self, count):
        if count == 0:
            return b""
        how = self.take(1)[0]
        if how == 0:
            return self.take(count)
        if how == 1:
            packed = self.take(self.u16())
            return zstandard.ZstdDecompressor().decompress(packed, max_output_size=count)
        return self.take(1) * count

    def planes(self, width, count):
        planes = [self.plane(count) for _ in range(width)]
        return [int.from_bytes(bytes(entry), "little") for entry in zip(*planes)]

    def column(self):
        count, exceptions, width = self.u16(), self.u16(), self.take(1)[0]
        values = self.planes(width, count)
        positions, wide = self.planes(2, exceptions), self.planes(8, exceptions)
        for position, value in zip(positions, wide):
            values[position] = value
        return values


class Trace:
    def __init__(self, path):
        self.data = open(path, "rb").read()
        if self.data[:8] != MAGIC:
            raise ValueError("not an .hkt trace")
        version, length = struct.unpack_from("<II", self.data, 8)
        if version not in (1, 2, 3, 4):
            raise ValueError(f"version {version} is not known")
        self.has_sites = version >= 2
        self.start = 16 + length + 4
        (crc,) = struct.unpack_from("<I", self.data, 16 + length)
        if zlib.crc32(self.data[: 16 + length]) != crc:
            raise ValueError("damaged file header")
        self.header = json.loads(self.data[16 : 16 + length])
        self.footer = None  # known after the last event

    def payloads(self):
        at = self.start
        while at + SECTION.size <= len(self.data):
            tag, length, payload_crc, _, _, _, _, _, _, crc = SECTION.unpack_from(self.data, at)
            if zlib.crc32(self.data[at : at + 44]) != crc:
                raise ValueError(f"damaged section header at byte {at}")
            at += SECTION.size
            payload = self.data[at : at + length]
            at += length
            if len(payload) < length:
                return
            if zlib.crc32(payload) != payload_crc:
                raise ValueError(f"damaged payload before byte {at}")
            if tag == b"HKft":
                self.footer = json.loads(payload)
                return
            yield payload

    def __iter__(self):
        dead, used, time_ns = [], 0, 0
        for payload in self.payloads():
            source = Input(payload)
            ops, deltas = source.column(), source.column()
            columns = {name: iter(source.column()) for name in (SIZE, OBJECT, DETAIL, NUMBER, OFFSET)}
            threads, lengths = source.column(), source.column()
            sites = iter(source.column() if self.has_sites else [])
            thread_of = (thread for thread, length in zip(threads, lengths) for _ in range(length))
            for code, delta, thread in zip(ops, deltas, thread_of, strict=True):
                time_ns += delta
                fields = {name: next(columns[name]) for name in TAKES.get(code, [SIZE] if code < 6 else [])}
                if SIZE in fields:
                    fields["site"] = next(sites, 0)
                if code < 6:
                    fields.update(call=CALLS[code // 3], birth=INITIAL_TOUCHES[code % 3], align_log2=0)
                if code == 23:
                    detail = fields.pop(DETAIL)
                    fields.update(policy=POLICIES[detail & 15], inherited=bool(detail >> 4 & 1))
                if code == 24:
                    fields.update(outlives=bool(fields.pop(DETAIL) & 1))
                if DETAIL in fields:
                    detail = fields.pop(DETAIL)
                    calls = CALLS if code in (7, 14) else CALLS[2:]
                    fields.update(call=calls[detail & 15], birth=INITIAL_TOUCHES[detail >> 4 & 15], align_log2=detail >> 8)
                if code < 6 or code in (7, 10):
                    if not dead:
                        dead.append(used)
                        used += 1
                    fields[OBJECT] = dead.pop()
                elif code in (6, 9):
                    dead.append(fields[OBJECT])
                yield time_ns, thread, NAMES.get(code, "alloc"), fields


if __name__ == "__main__":
    for event in Trace(sys.argv[1]):
        print(json.dumps(event))
