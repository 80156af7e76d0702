"""Compares a page set predicted by hksim with the page tables of a stopped process, read from /proc only.

    page_sets.py DUMP EVENT PID BASE

Prints one line and exits with 0 if they are equal. With kpageflags (root only) the kind of each page is compared, otherwise
only its presence.
"""

import struct
import sys

PAGE = 4096
PRESENT = 1 << 63
PFN = (1 << 55) - 1
KPF_HUGE, KPF_THP, KPF_ZERO_PAGE = 17, 22, 24


def predicted(path, event):
    """Number of pages of the reservation, and the pages that should be present after an event: page -> state."""
    with open(path) as dump:
        lines = [line.split() for line in dump]
    assert lines[0] == ["hksim-pages", "1"], lines[0]
    pages, found, wanted = int(lines[1][1]), {}, False
    for words in lines[2:]:
        if words[0] == "after":
            wanted = int(words[1]) == event
        elif wanted:
            first, count = int(words[0]), int(words[1])
            found.update(dict.fromkeys(range(first, first + count), words[2]))
    return pages, found


def page_tables(pid, base, pages):
    """Present pages: page -> frame number, or 0 if the kernel hides it."""
    found = {}
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        pagemap.seek(base // PAGE * 8)
        for start in range(0, pages, 1 << 16):
            chunk = pagemap.read(8 * min(1 << 16, pages - start))
            if not chunk.strip(b"\0"):
                continue
            for at, (entry,) in enumerate(struct.iter_unpack("<Q", chunk)):
                if entry & PRESENT:
                    found[start + at] = entry & PFN
    return found


def kinds(frames):
    """Page -> kind of its frame: zero, huge_zero, huge (transparent), hugetlb or small; None without permission."""
    if not any(frames.values()):
        return None
    found = {}
    with open("/proc/kpageflags", "rb", buffering=0) as kpageflags:
        for page, frame in frames.items():
            kpageflags.seek(frame * 8)
            (flags,) = struct.unpack("<Q", kpageflags.read(8))
            bit = lambda number: flags >> number & 1
            zero, huge = bit(KPF_ZERO_PAGE), bit(KPF_THP)
            found[page] = ("huge_zero" if huge else "zero") if zero else "hugetlb" if bit(KPF_HUGE) else "huge" if huge else "small"
    return found


def huge_kilobytes(pid, base, pages):
    """AnonHugePages of the mappings in the reservation, in kB."""
    total, inside = 0, False
    with open(f"/proc/{pid}/smaps") as smaps:
        for line in smaps:
            words = line.split()
            if "-" in words[0] and not words[0].endswith(":"):
                start = int(words[0].split("-")[0], 16)
                inside = base <= start < base + pages * PAGE
            elif inside and words[0] == "AnonHugePages:":
                total += int(words[1])
    return total


def main():
    dump, event, pid, base = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4], 16)
    pages, states = predicted(dump, event)
    frames = page_tables(pid, base, pages)
    only_predicted, only_there = states.keys() - frames.keys(), frames.keys() - states.keys()
    seen = kinds(frames)
    # A huge folio may be mapped by PTEs, so the frame of a page in state `base` may be small or huge.
    allowed = {"zero": {"zero"}, "huge_zero": {"huge_zero"}, "thp": {"huge"}, "hugetlb": {"hugetlb"}, "base": {"small", "huge"}}
    wrong = [page for page in states.keys() & frames.keys() if seen and seen[page] not in allowed[states[page]]]
    huge = sum(PAGE // 1024 for state in states.values() if state == "thp")
    huge_there = huge_kilobytes(pid, base, pages)
    compared = "pages and kinds" if seen else "pages"
    print(f"{compared}: {len(states)} predicted, {len(frames)} present, {len(only_predicted)} only predicted, {len(only_there)} only present,"
          f" {len(wrong)} of another kind, huge {huge} and {huge_there} kB")
    sys.exit(0 if not (only_predicted or only_there or wrong) and huge == huge_there and states else 1)


main()
