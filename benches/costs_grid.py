"""Rows of costs-grid.sh: `row` extracts one from a result, `show` prints it, `sum` prints the totals."""

import json
import sys


def row(trace, policy, path):
    with open(path) as file:
        text = file.read()
    time = json.loads(text)["rows"][0]["system_time"] if text else {"skipped": "no result"}
    keys = ("low_s", "median_s", "high_s", "measured_s", "measured_error_share", "drift", "inside", "skipped")
    print(json.dumps({"trace": trace, "policy": policy, **{key: time.get(key) for key in keys}}))


def ratio(row):
    """Measured time divided by predicted time, at the machine's speed during the calibration."""
    return row["measured_s"] / row["drift"] / row["median_s"]


def show(row):
    line = f"{row['trace']:18} {row['policy']:44}"
    if row["low_s"] is not None:
        line += f" {row['low_s'] * 1e3:8.2f} to {row['high_s'] * 1e3:8.2f} ms ({row['high_s'] / row['low_s']:.2f})"
    if row["measured_s"] is not None:
        line += f"  measured {row['measured_s'] * 1e3:8.2f} ({ratio(row):.2f} of the median,"
        line += f" error {row['measured_error_share'] * 100:.0f} %, drift {row['drift']:.2f})"
    line += {True: "  inside", False: "  OUTSIDE", None: f"  skipped: {row['skipped'] or 'by validate'}"}[row["inside"]]
    print(line)


def middle(values):
    return sorted(values)[len(values) // 2] if values else float("nan")


def total(rows):
    judged = [row for row in rows if row["inside"] is not None]
    inside = sum(row["inside"] for row in judged)
    share = 100 * inside / max(len(judged), 1)
    print(f"\n{inside} of {len(judged)} judged pairs inside ({share:.0f} %); {len(rows) - len(judged)} of {len(rows)} not judged")
    widths = [row["high_s"] / row["low_s"] for row in rows if row["low_s"]]
    narrow = sum(width <= 1.5 for width in widths)
    print(f"ranges: {narrow} of {len(widths)} no wider than 1.5; median {middle(widths):.2f}, widest {max(widths, default=0):.2f}")
    ratios = [ratio(row) for row in judged]
    print(f"measured by median: median {middle(ratios):.2f}, from {min(ratios, default=0):.2f} to {max(ratios, default=0):.2f}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["row", trace, policy, path]:
            row(trace, policy, path)
        case ["show"]:
            show(json.loads(sys.stdin.read()))
        case ["sum"]:
            total([json.loads(line) for line in sys.stdin])
        case _:
            sys.exit(__doc__)
