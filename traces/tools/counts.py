"""Counts of calls, from the counter and from traces, and their comparison."""

import json
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

# For each function in counter.c's enum, in its order: the group in which `hksim info` counts it.
COUNTER_GROUPS = (
    "malloc calloc realloc realloc free free(NULL) aligned aligned aligned aligned aligned usable_size".split()
)
INFO_GROUPS = {
    "malloc": ["mallocs"],
    "calloc": ["callocs"],
    "realloc": ["reallocs"],
    "free": ["frees"],
    "free(NULL)": ["frees_null"],
    "aligned": ["aligned_allocs"],
    "usable_size": ["usable_size_calls"],
}


def read_counter(folder, without=None):
    """The counts in the counter's files in `folder`: {process id: {group: calls}}. The images of a process are added up; images of the
    executable `without` are left out."""
    processes = {}
    for path in sorted(Path(folder).iterdir()):
        data = path.read_bytes()
        calls = struct.unpack_from(f"<{len(COUNTER_GROUPS)}Q", data)
        if data[8 * len(calls) :].split(b"\0")[0].decode() == str(without):
            continue
        groups = processes.setdefault(int(path.name.split(".")[0]), dict.fromkeys(INFO_GROUPS, 0))
        for group, count in zip(COUNTER_GROUPS, calls):
            groups[group] += count
    return processes


def info(hksim, trace):
    """`hksim info` of a trace."""
    command = [str(hksim), "info", "--format", "json", str(trace)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def read_traces(hksim, folder):
    """The counts and the files of the traces in `folder`: {process id: {group: calls}} and {process id: [(path, info)]}."""
    processes, traces = {}, {}
    for path in sorted(Path(folder).glob("*.hkt")):
        said = info(hksim, path)
        pid = said["origin"]["pid"]
        traces.setdefault(pid, []).append((path, said))
        groups = processes.setdefault(pid, dict.fromkeys(INFO_GROUPS, 0))
        for group, names in INFO_GROUPS.items():
            groups[group] += sum(said[name] for name in names)
        # malloc_usable_size of an unknown pointer has no event, but is counted here.
        groups["usable_size"] += said["quality"]["unknown_uses_dropped"]
    return processes, traces


def busiest(processes):
    """The counts of the process with the most calls."""
    return max(processes.values(), key=lambda groups: sum(groups.values()), default=dict.fromkeys(INFO_GROUPS, 0))


def differences(recorded, counted):
    """Describes the differences between two tables {process id: {group: calls}} of the same run. A process without calls has no trace, which
    is not a difference."""
    found = []
    for pid in sorted({*recorded, *(pid for pid, groups in counted.items() if any(groups.values()))}):
        if pid not in recorded or pid not in counted:
            found.append(f"process {pid} was {'counted' if pid in counted else 'recorded'} only")
            continue
        for group, calls in counted[pid].items():
            if recorded[pid][group] != calls:
                found.append(f"process {pid}: {group} recorded {recorded[pid][group]}, counted {calls}")
    return found


@dataclass
class Outside:
    """A count outside the range of the counter's runs."""

    group: str
    recorded: int
    least: int
    most: int

    @property
    def too_far(self):
        """Whether the count is farther from the counter's runs than these runs are from each other."""
        distance = max(self.least - self.recorded, self.recorded - self.most)
        return distance > self.most - self.least

    def __str__(self):
        return f"{self.group} recorded {self.recorded}, counted {self.least} to {self.most}"


def outside(recorded, runs):
    """The groups whose recorded calls are outside the range of the counter's runs."""
    found = []
    for group, calls in recorded.items():
        least, most = min(run[group] for run in runs), max(run[group] for run in runs)
        if not least <= calls <= most:
            found.append(Outside(group, calls, least, most))
    return found
