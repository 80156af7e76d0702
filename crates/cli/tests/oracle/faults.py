"""Counts the faults in a perf script by page, using only a regular expression.

Usage: faults.py SCRIPT PROCESS [FIRST-LAST ...]. Prints the numbers of faults and pages, first in total and then for each
range of hexadecimal addresses.
"""
import re
import sys

addresses = []
for line in open(sys.argv[1], errors="replace"):
    found = re.search(r"\b%s/\d+\s.*page-faults(?::\w+)?:\s+([0-9a-f]+)" % sys.argv[2], line)
    if found:
        addresses.append(int(found.group(1), 16))


def counts(found):
    return len(found), len({address >> 12 for address in found})


print(*counts(addresses))
for text in sys.argv[3:]:
    first, last = (int(part, 16) for part in text.split("-"))
    print(*counts([address for address in addresses if first <= address < last]))
