#!/usr/bin/env python3
"""Which part of the time model's error two machines share: common_errors.py ONE.csv OTHER.csv, tables that `time_model.py evaluate --csv` writes.

The error of a row is the logarithm of predicted by measured time, less its median on the recording. Prints how the errors of the
rows of both tables correlate, the errors of predicted ratios in each, those of the errors' difference divided by the root of 2
(what the machines do not share), and the rows that are wrong alike: by the smaller of their two errors. Recordings of the same name
should be the same, and so should the model.
"""

import argparse
import csv
import itertools
import math
import statistics

from errors import quantile

PARTS = ["instructions_ns_per_call", "memory_ns_per_call", "kernel_ns_per_call", "replay_ns_per_call"]


def errors_of(path):
    """By recording and design."""
    found = {}
    with open(path, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            predicted, measured = sum(float(row[part]) for part in PARTS), float(row["measured_ns_per_call_low"])
            found[row["recording"], row["design"]] = math.log(predicted / measured)
    for name in {recording for recording, _ in found}:
        middle = statistics.median(error for (recording, _), error in found.items() if recording == name)
        found.update({key: error - middle for key, error in found.items() if key[0] == name})
    return found


def of_ratios(errors):
    """The median and nine in ten of the errors of predicted ratios of two designs."""
    pairs = itertools.combinations(errors.items(), 2)
    ratios = [abs(math.expm1(a - b)) for ((one, _), a), ((other, _), b) in pairs if one == other]
    return f"{statistics.median(ratios):.1%} / {quantile(ratios, 0.9):.1%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs=2, metavar="TABLE.csv")
    parser.add_argument("--rows", type=int, default=20, help="rows that are wrong alike [default: 20]")
    arguments = parser.parse_args()
    one, other = map(errors_of, arguments.tables)
    keys = [key for key in one if key in other]
    one, other = ({key: errors[key] for key in keys} for errors in (one, other))
    unshared = {key: (one[key] - other[key]) / math.sqrt(2) for key in keys}
    print(f"{len(keys)} rows, correlation {statistics.correlation(list(one.values()), list(other.values())):.2f}")
    print(f"ratio error, median / p90: {of_ratios(one)}, {of_ratios(other)}; not shared: {of_ratios(unshared)}")
    alike = [key for key in keys if one[key] * other[key] > 0]
    for key in sorted(alike, key=lambda key: -min(abs(one[key]), abs(other[key])))[:arguments.rows]:
        print(f"{math.expm1(one[key]):+7.1%} {math.expm1(other[key]):+7.1%}  {key[0]}  {key[1]}")


if __name__ == "__main__":
    main()
