"""What /proc says about a stopped process, read without hksim."""

import re
import struct

HUGE, PAGE = 2 << 20, 4096
PRESENT = 1 << 63
FRAME = (1 << 55) - 1
KPF_ZERO_PAGE, KPF_THP, KPF_COMPOUND_HEAD, KPF_COMPOUND_TAIL = 1 << 24, 1 << 22, 1 << 15, 1 << 16


def entries(pid, start, end):
    """Entries of /proc/PID/pagemap."""
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        file.seek(start // PAGE * 8)
        data = b""
        while len(data) < (end - start) // PAGE * 8:
            part = file.read((end - start) // PAGE * 8 - len(data))
            if not part:
                break
            data += part
    return [entry for (entry,) in struct.iter_unpack("<Q", data)]


def is_huge(pid, address):
    """Whether a huge page maps a range: its smaps says so, and its frames follow each other."""
    frames = [entry & FRAME for entry in entries(pid, address, address + HUGE) if entry & PRESENT]
    follow = len(frames) == HUGE // PAGE and all(frame == frames[0] + place for place, frame in enumerate(frames))
    return follow and frames[0] % (HUGE // PAGE) == 0


class Memory:
    """The mappings of a process, and its written pages."""

    def __init__(self, pid):
        self.pid, self.mappings = pid, []
        with open(f"/proc/{pid}/smaps", errors="replace") as file:
            for line in file:
                head = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+) *(.*)", line)
                if head:
                    start, end = int(head[1], 16), int(head[2], 16)
                    self.mappings.append({"start": start, "end": end, "mode": head[3], "inode": int(head[4]), "name": head[5].strip()})
                    continue
                key, _, value = line.partition(":")
                words = value.split()
                self.mappings[-1][key] = int(words[0]) * 1024 if value.rstrip().endswith("kB") else words

    def total(self, key, name=None):
        """The sum of a figure, of all mappings or of private ones with this name."""
        return sum(one.get(key, 0) for one in self.mappings if name is None or (one["name"] == name and one["mode"].endswith("p")))

    def written_pages(self, start, end):
        """Pages of private anonymous memory between two addresses that were written, outside huge pages."""
        pages = 0
        for mapping in self.mappings:
            special = mapping["name"].startswith("[v") or mapping["name"] == "[uprobes]"
            private = mapping["mode"].endswith("p") and mapping["inode"] == 0 and "ht" not in mapping["VmFlags"]
            first, last = max(start, mapping["start"]), min(end, mapping["end"])
            # A mapping without resident pages may be longer than can be read.
            if private and not special and first < last and mapping["Rss"] > 0:
                pages += self.of_mapping(first, last)
        return pages

    def of_mapping(self, start, end):
        pages, at = 0, start
        while at < end:
            stop = min(end, (at // HUGE + 1) * HUGE)
            present = [entry & FRAME for entry in entries(self.pid, at, stop) if entry & PRESENT]
            whole = stop - at == HUGE and is_huge(self.pid, at)
            if present and not whole:
                pages += sum(not flags(frame) & KPF_ZERO_PAGE for frame in present)
            at = stop
        return pages


KPAGEFLAGS = None


def flags(frame):
    """The flags of a page frame."""
    global KPAGEFLAGS
    if KPAGEFLAGS is None:
        KPAGEFLAGS = open("/proc/kpageflags", "rb", buffering=0)
    KPAGEFLAGS.seek(frame * 8)
    return struct.unpack("<Q", KPAGEFLAGS.read(8))[0]
