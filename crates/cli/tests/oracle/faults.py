"""Counts the faults of a perf script by page, with nothing but a regular expression.

Usage: faults.py SCRIPT PROCESS [FIRST-LAST ...]: prints faults, pages, and for each range of addresses (hex) its faults and pages.
"""
import re
import sys

addresses = []
for line in open(sys.argv[1], errors="replace"):
    found = re.search(r"\b%s/\d+\s.*page-faults(?::\w+)?:\s+([0-9a-f]+)" % sys.argv[2], line)
    if found:
        addresses.append(int(found.group(1), 16))


def told(some):
    return len(some), len({address >> 12 for address in some})


print(*told(addresses))
for text in sys.argv[3:]:
    first, last = (int(part, 16) for part in text.split("-"))
    print(*told([address for address in addresses if first <= address < last]))
