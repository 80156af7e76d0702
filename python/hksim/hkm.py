"""An independent reader of .hkm memory recordings, implemented only from docs/reference/memory-recording.md. Needs the package
`zstandard` or the command `zstd`.

    for event in Recording("app.hkm"): print(event)

An event is a tuple (time_ns, thread, name, {field: value}). Pages are ranges [first, end). An event with a call site has the field
`site`, a number from 1 as in allocation traces: `Recording.stacks[site - 1]` is a pair (end, frames), each frame (module, address, function, source), and a
module (path, build id). As a program, prints one JSON array per event, with the stack instead of the number; with --totals, the number of events of each name as a JSON object.
"""

import json
import struct
import subprocess
import sys
import zlib
from collections import Counter

try:
    import zstandard
except ImportError:
    zstandard = None

MAGIC = b"\x89HKM\r\n\x1a\n"
SECTION = struct.Struct("<4sIIIIQQII")
KINDS = "anonymous private_file shared growing_stack other_hugetlb special harness".split()
ORIGINS = "mmap brk exec kernel".split()
STATES = "small small_shared small_lazy huge huge_shared huge_lazy zero huge_zero swapped guard".split()
ENDS = "outermost depth no_unwind_information stack_cut_off".split()
PAGE, RANGE, NUMBER = "page range number".split()
# Code: name and fields, each with its type.
EVENTS = {
    0: ("read", [("page", PAGE)]),
    1: ("write", [("page", PAGE)]),
    2: ("touch", [("page", PAGE)]),
    4: ("unmap", [("pages", RANGE)]),
    5: ("remap", [("old", RANGE), ("new", RANGE), ("flags", NUMBER)]),
    6: ("protect", [("pages", RANGE), ("protection", NUMBER), ("errno", NUMBER)]),
    7: ("advise", [("pages", RANGE), ("advice", NUMBER), ("errno", NUMBER)]),
    8: ("lock", [("pages", RANGE), ("flags", NUMBER), ("errno", NUMBER)]),
    9: ("unlock", [("pages", RANGE)]),
    10: ("lock_all", [("flags", NUMBER)]),
    11: ("unlock_all", []),
    12: ("name_mapping", [("pages", RANGE), ("name_address", NUMBER)]),
    13: ("disable_thp", [("value", NUMBER), ("flags", NUMBER)]),
    14: ("fork", [("child_pid", NUMBER)]),
    15: ("child_ended", [("child_pid", NUMBER)]),
    16: ("lost", [("events", NUMBER)]),
}


def decompress(frame, plain_bytes):
    if zstandard:
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=plain_bytes)
    return subprocess.run(["zstd", "-dcq"], input=frame, stdout=subprocess.PIPE, check=True).stdout


class Content:
    """The plain bytes of a chunk, consumed from the front."""

    def __init__(self, data):
        self.data, self.at, self.page = data, 0, 0

    def take(self, count):
        taken = self.data[self.at : self.at + count]
        if len(taken) < count:
            raise ValueError("a chunk ends early")
        self.at += count
        return taken

    def number(self):
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def field(self, kind):
        if kind == NUMBER:
            return self.number()
        step = self.number()
        self.page += -(step + 1) // 2 if step & 1 else step // 2
        return self.page if kind == PAGE else [self.page, self.page + self.number()]


class Recording:
    def __init__(self, path):
        self.data = open(path, "rb").read()
        if self.data[:8] != MAGIC:
            raise ValueError("not a memory recording")
        version, length = struct.unpack_from("<II", self.data, 8)
        if version not in (1, 2, 3):
            raise ValueError(f"version {version} is not known")
        self.start = 16 + length + 4
        (crc,) = struct.unpack_from("<I", self.data, 16 + length)
        if zlib.crc32(self.data[: 16 + length]) != crc:
            raise ValueError("damaged file header")
        self.header = json.loads(self.data[16 : 16 + length])
        self.has_stacks = "stack_depth" in self.header
        self.modules, self.stacks = [], []  # those of the chunks so far
        self.footer = None  # known after the last event

    def chunks(self):
        at, total = self.start, 0
        while at + SECTION.size <= len(self.data):
            tag, length, payload_crc, plain, events, events_total, time_ns, _, crc = SECTION.unpack_from(self.data, at)
            if zlib.crc32(self.data[at : at + 40]) != crc:
                raise ValueError(f"damaged section header at byte {at}")
            at += SECTION.size
            payload = self.data[at : at + length]
            at += length
            if len(payload) < length:
                return
            total += events
            if zlib.crc32(payload) != payload_crc or total != events_total:
                raise ValueError(f"damaged section before byte {at}")
            if tag == b"HMft":
                self.footer = json.loads(payload)
                return
            yield decompress(payload, plain), events, time_ns

    def __iter__(self):
        names = []
        for plain, events, last_ns in self.chunks():
            content = Content(plain)
            for _ in range(content.number()):
                names.append(content.take(content.number()).decode())
            if self.has_stacks:
                self.define(content, names)
            time_ns = thread = 0
            for _ in range(events):
                (first,) = content.take(1)
                if first & 0x40:
                    time_ns += content.number()
                if first & 0x80:
                    thread = content.number()
                site = {}
                if first & 0x20:
                    if not self.has_stacks:
                        raise ValueError("a call site in a recording without call stacks")
                    site = {"site": content.number() + 1}
                name, fields = self.event(first & 0x1F, content, names)
                yield time_ns, thread, name, fields | site
            if content.at != len(plain) or time_ns != last_ns:
                raise ValueError("a chunk does not end with its last event")

    def define(self, content, names):
        """Reads the modules and call sites that a chunk defines."""
        name = lambda number: names[number - 1] if number else None
        for _ in range(content.number()):
            path = names[content.number() - 1]
            self.modules.append((path, content.take(content.number()).hex()))
        for _ in range(content.number()):
            (end,) = content.take(1)
            frames = []
            for _ in range(content.number()):
                module, address, function, source = (content.number() for _ in range(4))
                frames.append((self.modules[module - 1] if module else None, address, name(function), name(source)))
            self.stacks.append((ENDS[end], frames))

    @staticmethod
    def event(code, content, names):
        if code == 18:
            pages = content.field(RANGE)
            (state,) = content.take(1)
            return "pages_at_start", dict(pages=pages, state=STATES[state])
        if code not in (3, 17):
            name, fields = EVENTS[code]
            return name, {field: content.field(kind) for field, kind in fields}
        pages = content.field(RANGE)
        kind, origin = content.take(2)
        hint, protection, flags, name = (content.number() for _ in range(4))
        fields = dict(pages=pages, kind=KINDS[kind], origin=ORIGINS[origin], hint_page=hint)
        fields = dict(fields, protection=protection, flags=flags, name=names[name - 1] if name else None)
        return ("map", fields) if code == 3 else ("mapping_at_start", dict(fields, traits=content.number()))


if __name__ == "__main__":
    recording = Recording(sys.argv[-1])
    if "--totals" in sys.argv:
        print(json.dumps(Counter(name for _, _, name, _ in recording)))
    else:
        for time_ns, thread, name, fields in recording:
            if "site" in fields:
                fields["site"] = recording.stacks[fields["site"] - 1]
            print(json.dumps((time_ns, thread, name, fields)))
