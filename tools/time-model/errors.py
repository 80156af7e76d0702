"""Errors of predicted times beside measured ones."""

import csv
import importlib.util
import itertools
import os
import statistics

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# Larger differences of two designs are asked for apart.
LARGE_SHARE = 0.1


def oracle():
    """The model in Python, which the tests of the command compare with its results. (`time` is a module of Python.)"""
    path = os.path.join(ROOT, "crates/cli/tests/oracle/time.py")
    spec = importlib.util.spec_from_file_location("oracle_time", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def paths_table():
    with open(os.path.join(ROOT, "crates/time-model/src/paths.tsv"), encoding="utf-8") as file:
        return file.read().splitlines()


def ns_of(row):
    """The measured time of a row. What disturbs a run only makes it longer, and on a virtual machine for most of a minute at
    a time. So it is the lower end of the median's interval: of nine rounds, the second fastest."""
    return row["measured"]["cpu_ns_per_call"]["low"]


def is_apart(one, other):
    """Whether measurement tells two rows apart: the fast rounds of one are slower than half of the other's."""
    low, median = ([row["measured"]["cpu_ns_per_call"][end] for row in (one, other)] for end in ("low", "median"))
    return low[0] > median[1] or low[1] > median[0]


def quantile(values, share):
    values = sorted(values)
    return values[min(int(share * len(values)), len(values) - 1)]


class Pairs:
    """How many pairs of designs a figure orders right, and wrong."""

    def __init__(self):
        self.right = self.wrong = 0

    def note(self, is_right):
        self.right += is_right
        self.wrong += not is_right

    def add(self, other):
        self.right, self.wrong = self.right + other.right, self.wrong + other.wrong

    def __str__(self):
        return f"{self.right} / {self.wrong}"


class Errors:
    """The errors of one recording, or of several."""

    FIGURES = ("time", "installs", "system time")

    def __init__(self):
        self.levels, self.ratios = [], []
        self.pairs = {figure: Pairs() for figure in self.FIGURES}
        self.large = Pairs()

    @staticmethod
    def of(recording, predicted_ns):
        """`predicted_ns` gives the nanoseconds per call of a row, without the replay's own."""
        errors, rows, own = Errors(), recording["rows"], recording["own_ns"]["low"]
        totals = [predicted_ns(row) + own for row in rows]
        errors.levels = [total / ns_of(row) for total, row in zip(totals, rows)]
        for (one, first), (other, second) in itertools.combinations(zip(rows, totals), 2):
            ratio = ns_of(one) / ns_of(other)
            errors.ratios.append(abs(first / second / ratio - 1))
            if not is_apart(one, other):
                continue
            is_less = ratio < 1
            errors.pairs["time"].note((first < second) == is_less)
            if max(ratio, 1 / ratio) > 1 + LARGE_SHARE:
                errors.large.note((first < second) == is_less)
            for figure, get in (("installs", lambda row: row["sim"]["installs"]["total"]),
                                ("system time", lambda row: row["sim"]["system_time"]["median_s"])):
                pair = get(one), get(other)
                errors.pairs[figure].note(pair[0] != pair[1] and (pair[0] < pair[1]) == is_less)
        return errors

    def add(self, other):
        self.levels += other.levels
        self.ratios += other.ratios
        self.large.add(other.large)
        for figure, pairs in self.pairs.items():
            pairs.add(other.pairs[figure])

    def cells(self):
        """Of the rows of a table."""
        levels = f"{min(self.levels):.2f} to {max(self.levels):.2f} ({statistics.median(self.levels):.2f})"
        ratios = f"{statistics.median(self.ratios):.1%} / {quantile(self.ratios, 0.9):.1%}"
        return [levels, ratios, str(self.large), *(str(self.pairs[figure]) for figure in self.FIGURES)]

    def summary(self):
        """Cells of a table of terms: pairs, ratios, levels."""
        off = [abs(level - 1) for level in self.levels]
        return [str(self.pairs["time"]), f"{statistics.median(self.ratios):.1%} / {quantile(self.ratios, 0.9):.1%}",
                f"{statistics.median(off):.1%} / {quantile(off, 0.9):.1%}"]


def of_model(row):
    """The prediction of the command that was measured."""
    return row["sim"]["time"]["ns_per_call"]["median"]


HEAD = ["Recording", "Replay's own ns", "Level, predicted / measured (median)", "Ratio error, median / p90",
        "Pairs that differ by over 10 %: right / wrong", "All pairs apart", "by installs", "by system time"]


def write_rows(path, recordings):
    """Every row as a line of CSV."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["recording", "design", "installs", "system_ns_per_call_predicted", "instructions_ns_per_call",
                         "memory_ns_per_call", "kernel_ns_per_call", "replay_ns_per_call", "measured_ns_per_call_low",
                         "measured_ns_per_call_median", "measured_ns_per_call_high", "system_ns_per_call_measured"])
        for name, recording in recordings.items():
            for row in recording["rows"]:
                sim, measured = row["sim"], row["measured"]
                parts, total = sim["time"]["parts_ns_per_call"], measured["cpu_ns_per_call"]
                times = [sim["system_time"]["median_s"] / sim["calls"] * 1e9, parts["instructions"], parts["memory"],
                         parts["kernel"], recording["own_ns"]["low"], total["low"], total["median"], total["high"],
                         measured["system_ns_per_call"]["median"]]
                writer.writerow([name, row["design"], sim["installs"]["total"], *(f"{ns:.2f}" for ns in times)])


def line(cells):
    return f"| {' | '.join(cells)} |"


def print_table(recordings, fitted=(), is_by_row=False):
    """Prints the errors of each recording, and of all that were not fitted."""
    print(line(HEAD))
    print("|---|" + "--:|" * (len(HEAD) - 1))
    held_out = Errors()
    for name, recording in recordings.items():
        errors = Errors.of(recording, of_model)
        mark = " (fit)" if name in fitted else ""
        print(line([name + mark, f"{recording['own_ns']['low']:.1f}", *errors.cells()]))
        if not mark:
            held_out.add(errors)
        for row in recording["rows"] if is_by_row else []:
            parts = ", ".join(f"{part} {ns:.1f}" for part, ns in row["sim"]["time"]["parts_ns_per_call"].items())
            print(f"    {row['design']:36} predicted {of_model(row) + recording['own_ns']['low']:6.1f} ({parts}), "
                  f"measured {ns_of(row):6.1f}")
    if held_out.levels:
        print(line(["all not fitted", "", *held_out.cells()]))
        print(f"level error: median / p90 {held_out.summary()[2]}")
