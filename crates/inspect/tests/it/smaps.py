"""What /proc says about a process, read without hksim: sums of smaps, and the pages of each 2 MiB range in pagemap.

Usage: smaps.py PID. Prints JSON.
"""

import json
import re
import struct
import sys

HUGE, PAGE = 2 << 20, 4096


def mappings(pid):
    found = []
    with open(f"/proc/{pid}/smaps", errors="replace") as file:
        for line in file:
            head = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ (\d+) *(.*)", line)
            if head:
                start, end = int(head[1], 16), int(head[2], 16)
                found.append({"start": start, "end": end, "mode": head[3], "inode": int(head[4]), "name": head[5]})
                continue
            key, _, value = line.partition(":")
            number = value.split()[0] if value.split() else ""
            found[-1][key] = int(number) * 1024 if value.rstrip().endswith("kB") else value.split()
    return found


def is_anonymous(mapping):
    special = mapping["name"].startswith("[v") or mapping["name"] == "[uprobes]"
    return mapping["mode"].endswith("p") and mapping["inode"] == 0 and not special and "ht" not in mapping["VmFlags"]


def pages_by_range(pid, mapping, into):
    """Present and swapped pages of each 2 MiB range."""
    with open(f"/proc/{pid}/pagemap", "rb") as file:
        at = mapping["start"]
        while at < mapping["end"]:
            count = min((mapping["end"] - at) // PAGE, 1 << 16)
            file.seek(at // PAGE * 8)
            for index, (entry,) in enumerate(struct.iter_unpack("<Q", file.read(count * 8))):
                if entry >> 62 & 3:
                    place = into.setdefault((at + index * PAGE) // HUGE, [0, 0])
                    place[0 if entry >> 63 else 1] += 1
            at += count * PAGE


def main():
    pid = int(sys.argv[1])
    found = mappings(pid)
    total = lambda key: sum(mapping.get(key, 0) for mapping in found)
    ranges = {}
    # Reservations without access hold nothing, and may be too long to read.
    for mapping in filter(is_anonymous, found):
        if mapping["mode"][:3] != "---" and mapping["Rss"] + mapping["Swap"] > 0:
            pages_by_range(pid, mapping, ranges)
    print(json.dumps({
        "rss_bytes": total("Rss"),
        "huge_bytes": total("AnonHugePages"),
        "lazy_free_bytes": total("LazyFree"),
        "swap_bytes": total("Swap"),
        "anonymous_present_pages": sum(place[0] for place in ranges.values()),
        "used_ranges": len(ranges),
        "rss_by_address": {mapping["start"]: mapping["Rss"] for mapping in found},
    }))


main()
