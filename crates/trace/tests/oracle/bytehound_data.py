"""Recordings of bytehound for encode.py: chunks of events, with ids for blocks or in the older layout without ids."""

import struct


def varint(value):
    """A first byte whose number of leading ones is the number of further bytes, and which ends with the highest bits of the
    value; then the rest of the value, little-endian."""
    for more in range(8):
        if value < 1 << 7 * (more + 1):
            ones = 0xFF << 8 - more & 0xFF
            return bytes([ones | value >> 8 * more]) + (value & (1 << 8 * more) - 1).to_bytes(more, "little")
    return b"\xff" + value.to_bytes(8, "little")


def counted(text, form="<I"):
    return struct.pack(form, len(text)) + text


def lz4_block(data):
    """Compresses greedily: a match can only refer to the last occurrence of its first four bytes."""

    def extended(length):
        return b"" if length < 15 else b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])

    out, places, start, at = bytearray(), {}, 0, 0
    while at + 12 < len(data):
        four = data[at : at + 4]
        before = places.get(four)
        places[four] = at
        if before is None or at - before > 0xFFFF:
            at += 1
            continue
        length = 4
        while at + length < len(data) - 5 and data[before + length] == data[at + length]:
            length += 1
        out += bytes([min(at - start, 15) << 4 | min(length - 4, 15)]) + extended(at - start) + data[start:at]
        out += struct.pack("<H", at - before) + extended(length - 4)
        at += length
        start = at
    return bytes(out + bytes([min(len(data) - start, 15) << 4]) + extended(len(data) - start) + data[start:])


def others(random):
    """Events that do not concern blocks: one of each kind, by the number of the kind."""
    number, numbers = random.randrange(1 << 60), [random.randrange(1 << 62) for _ in range(random.randrange(9))]
    words = struct.pack(f"<I{len(numbers)}I", len(numbers), *(number & 0xFFFF_FFFF for number in numbers))
    longs = struct.pack(f"<I{len(numbers)}Q", len(numbers), *numbers)
    text = counted(bytes(random.randrange(256) for _ in range(random.randrange(300))))
    v = [varint(random.randrange(1 << random.choice([1, 7, 8, 14, 21, 35, 49, 56, 64]))) for _ in range(7)]
    long = struct.pack("<Q", number)
    source = long + v[0] + b"tidt"
    return {
        4: long + counted(b"/proc/self/maps") + text,
        5: long + longs,
        6: long + long + text,
        7: b"mark",
        8: long * 5 + b"four" * 4 + long,
        9: long * 4 + b"four",
        10: long * 2 + b"four" * 4,
        11: counted(b"MEMORY_PROFILER_CULL_TEMPORARY_ALLOCATIONS=0"),
        12: long * 3,
        13: long + b"tidt" + b"\xff" * 4 + longs,
        14: b"four" + text,
        15: long + b"four" * 6 + b"\1",
        16: words,
        18: long + b"tidt" + b"\1\0\0\0" + words,
        19: long + words,
        23: long + counted(b"/lib/libx.so") + counted(text, "<Q"),
        24: long + v[0] + long + v[1] + v[2] + v[3] + b"four" * 3 + varint(9) + b"[heap]   ",
        25: long + v[0] + long + v[1] + varint(2) + (long + v[2] + source) * 2,
        26: long + v[0] + long + b"".join(v[:7]),
        27: v[0] + long + v[1] + v[2] + b"four" * 3 + v[3] + source,
    }


def header():
    body = struct.pack("<4Q2QI", 0x1122334455667788, 0x99AABBCCDDEEFF00, 5_000_000, 5_000_100, 1_600_000_000, 999_999_999, 77)
    return struct.pack("<I", 0) + body + counted(b"./app\0-x") + counted(b"./app") + counted(b"x86_64") + struct.pack("<QB", 1, 8)


def bytehound_data(program, out, has_ids):
    random = program.random
    kinds = {"alloc": (20, 1), "realloc": (21, 2), "free": (22, 3)}
    time_us, start, seen = 5_000_200, None, 0
    ids = {}  # address: id of its block
    made = [0] * program.threads  # number of blocks that each thread has allocated
    queues = [[], []]  # events that have not been written
    events = [header()]

    def flush():
        for queue in queues:
            events.extend(queue)
            queue.clear()

    def record(kind, id, body):
        """Adds an event to one of two queues. The queue depends on the thread that allocated the block."""
        number = kinds[kind][0 if has_ids else 1]
        head = struct.pack("<I", number) + (struct.pack("<QQ", *id) if has_ids else b"")
        queues[id[0] >> 2 & 1 if has_ids else 0].append(head + body)

    def body(thread, address, size, flags):
        return struct.pack("<QQQIIIQ", pointer(address), size, 7, 1000 + thread, flags, 16, 0)

    def pointer(address):
        return 0x7F00_0000_0000 + 16 * address

    for thread, kind in program.steps(4000, ["malloc", "malloc", "calloc", "free", "free", "realloc", "other", "flush"]):
        time_us += 1 + random.randrange(50)
        if kind == "flush":
            if random.randrange(20) == 0:
                flush()
            continue
        if kind == "other":
            number, fields = random.choice(list(others(random).items()))
            queues[0].append(struct.pack("<I", number) + fields)
            continue
        start = time_us if start is None else start
        now, time, size = (time_us - start) * 1000, struct.pack("<Q", time_us), program.size()
        if kind in ("malloc", "calloc"):
            address = program.address()
            ids[address] = (thread + 1, made[thread])
            made[thread] += 1
            flags = (1 << 31 if kind == "calloc" else 0) | 1 | random.randrange(2) << 30
            record("alloc", ids[address], time + body(thread, address, size, flags))
            program.event(thread, "alloc", program.born(address), size, 0, kind, now)
        elif kind == "free":
            address = program.any_block()
            record("free", ids.pop(address), time + struct.pack("<QQI", pointer(address), 0, 1000 + thread))
            program.event(thread, "free", program.dies(address), time_ns=now)
        else:
            address, size = program.any_block(), size + 1
            new = program.address() if random.randrange(2) else address
            record("realloc", ids[address], time + struct.pack("<Q", pointer(address)) + body(thread, new, size, 1))
            program.event(thread, "realloc", program.blocks[address], size, None, "realloc", now)
            if new != address:
                ids[new] = ids.pop(address)
                program.blocks[new] = program.blocks.pop(address)
                program.dead_addresses.append(address)
    flush()
    stream = b"".join(events)
    while stream:
        # The first chunks are compressed, as in bytehound's files. A chunk may end within an event.
        length = random.choice([5_000, 70_000, 524_288])
        chunk, stream = stream[:length], stream[length:]
        seen += 1
        out.write(b"\2" + counted(chunk) if seen % 4 == 0 else b"\1" + counted(lz4_block(chunk)))
