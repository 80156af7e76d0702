"""Compares an export with its trace: exports.py TRACE.hkt csv|parquet|android|rep EXPORTED

The trace is read by python/hksim/hkt.py and the export by this script (Parquet by pyarrow), so no code of hksim is involved.
Prints the number of events compared. If there is a difference, prints the first one and exits with status 1.
"""

import csv
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[4] / "python"))
from hksim.hkt import Trace  # noqa: E402

csv.field_size_limit(1 << 30)
COLUMNS = "time_ns thread op object size align_log2 call birth offset bytes access number site text".split()
WORDS = {"op", "call", "birth", "access", "text"}
NO_BIRTH = {"realloc_free", "realloc_unknown", "realloc_failed", "alloc_failed"}


def rows_of(trace):
    """The rows that a table of all fields must have."""
    rows, marks = [], []
    for time_ns, thread, name, fields in trace:
        row = dict.fromkeys(COLUMNS)
        row.update(time_ns=time_ns, thread=thread, op=name.replace("_", "-"))
        row.update({key: value for key, value in fields.items() if key in COLUMNS})
        if name in ("read", "write"):
            row.update(op="touch", access=name, bytes=row["number"], number=None)
        if name in NO_BIRTH:
            row["birth"] = None
        if name not in ("alloc", "alloc_failed"):
            row["align_log2"] = None
        if row["birth"] == "first":
            row["birth"] = "first-byte"
        if name == "fork_end" and fields["outlives"]:
            row.update(op="fork-outlives")
        if name == "memory_policy":
            row.update(op="memory-policy-inherited" if fields["inherited"] else "memory-policy")
            row["call"] = fields["policy"].replace("_", "-")
        if name == "mark":
            marks.append(row)
        rows.append(row)
    names = (trace.footer or {}).get("mark_names", [])
    for row in marks:
        row["text"] = names[row["number"]] if row["number"] < len(names) else None
    return rows


def from_csv(path):
    rows, said = [], {}
    for line in csv.DictReader(open(path, newline="", encoding="utf-8")):
        if line["op"] in ("header", "footer"):
            said[line["op"]] = json.loads(line["text"])
            continue
        if int(line.pop("event")) != len(rows):
            sys.exit(f"row {len(rows)} has another number")
        rows.append({key: (line[key] if key in WORDS else int(line[key])) if line[key] else None for key in COLUMNS})
    return rows, said


def from_parquet(path):
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    if table.column_names != COLUMNS:
        sys.exit(f"columns are {table.column_names}")
    said = {key: json.loads(table.schema.metadata[b"hksim." + key.encode()]) for key in ("header", "footer")}
    return table.to_pylist(), said


def one_line(text):
    return text and text.replace("\n", " ").replace("\r", " ")


def compare_table(trace, kind, path):
    expected = rows_of(trace)
    found, said = from_csv(path) if kind == "csv" else from_parquet(path)
    if said != {"header": trace.header, "footer": trace.footer}:
        sys.exit(f"header and footer differ: {said}")
    if len(expected) != len(found):
        sys.exit(f"{len(found)} rows for {len(expected)} events")
    for number, (row, other) in enumerate(zip(expected, found)):
        if kind == "csv":
            row["text"] = one_line(row["text"])
        if row != other:
            sys.exit(f"event {number}: {row} is {other}")
    return len(found)


def compare_android(trace, path):
    lines, address, live, compared = open(path), {}, set(), 0

    def bear(pointer, fields):
        value = int(pointer, 16)
        if value in live or value == 0:
            sys.exit(f"{pointer} is already live")
        if value % (1 << min(max(fields.get("align_log2", 0), 4), 31)):
            sys.exit(f"{pointer} is not aligned to 2^{fields['align_log2']}")
        live.add(value)
        address[fields["object"]] = pointer

    def bury(pointer):
        live.remove(int(pointer, 16))

    for time_ns, thread, name, fields in trace:
        if name in "usable_size thread_start fork fork_end exec mark read write free_unknown memory_policy".split():
            continue
        if name == "realloc_failed" and fields["size"] == 0:
            continue
        words = next(lines).split()
        tid, op, pointer, rest = words[0], words[1], words[2], words[3:]
        times = [str(time_ns)] * (1 if name == "thread_exit" else 2)
        here = address.get(fields.get("object"))
        call, size = fields.get("call"), str(fields.get("size"))
        if name in ("alloc", "alloc_failed"):
            if name == "alloc":
                bear(pointer, fields)
            if fields["align_log2"] or call not in ("malloc", "calloc", "realloc", "reallocarray"):
                wanted = ["memalign", str(1 << fields["align_log2"]), size]
            else:
                wanted = {"malloc": ["malloc", size], "calloc": ["calloc", "1", size]}.get(call, ["realloc", "0x0", size])
            if name == "alloc_failed" and pointer != "0x0":
                sys.exit("a failed call has a pointer")
        elif name == "realloc_unknown":
            bear(pointer, fields)
            wanted = ["realloc", "0x0", size]
        elif name == "realloc":
            wanted = ["realloc", here, size]
            if pointer != here:
                sys.exit("a resized block moved")
        elif name == "realloc_failed":
            wanted = ["realloc", here, size]
        elif name == "realloc_free":
            bury(here)
            wanted = ["realloc", here, "0"]
        elif name == "free":
            bury(pointer)
            wanted = ["free"]
            if pointer != here:
                sys.exit("another block was freed")
        else:
            wanted = [{"free_null": "free", "thread_exit": "thread_done"}[name]]
        if [tid, op, *rest] != [f"{thread + 1}:", *wanted, *times]:
            sys.exit(f"{words} for {(time_ns, thread, name, fields)}")
        compared += 1
    if next(lines, None) is not None:
        sys.exit("there are more lines than events")
    return compared


def compare_rep(trace, path):
    lines = [line.split() for line in open(path)]
    expected, sizes, live, peak = [], {}, 0, 0
    for _, _, name, fields in trace:
        object = fields.get("object")
        if name in ("alloc", "realloc", "realloc_unknown"):
            size = max(fields["size"], 1)
            live += size - sizes.get(object, 0)
            sizes[object] = size
            expected.append(["r" if name == "realloc" else "a", str(object), str(size)])
        elif name in ("free", "realloc_free"):
            live -= sizes.pop(object)
            expected.append(["f", str(object)])
        peak = max(peak, live)
    head = [[str(peak)], [str(1 + max(int(line[1]) for line in expected))], [str(len(expected))], ["1"]]
    if lines != head + expected:
        sys.exit(f"the lines differ; the head is {lines[:4]}, expected {head}")
    return len(expected)


def main():
    trace, kind, path = Trace(sys.argv[1]), sys.argv[2], sys.argv[3]
    if kind in ("csv", "parquet"):
        print(compare_table(trace, kind, path))
    else:
        print({"android": compare_android, "rep": compare_rep}[kind](trace, path))


main()
