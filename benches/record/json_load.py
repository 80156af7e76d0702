"""Loads a JSON text repeatedly. Usage: json_load.py LOADS. Run with PYTHONMALLOC=malloc, so that objects come from malloc.

Prints nanoseconds of CPU and of wall-clock time over the loads alone, and a sum over the loaded data."""
import json
import random
import sys
import time

draw = random.Random(42).randrange
rows = [{"name": "row %d" % i, "values": [draw(1 << 20) for _ in range(draw(40))], "half": i / 2} for i in range(4000)]
text = json.dumps(rows)
cpu_ns, wall_ns = time.process_time_ns(), time.monotonic_ns()
total = sum(len(row["values"]) for _ in range(int(sys.argv[1])) for row in json.loads(text))
print(time.process_time_ns() - cpu_ns, time.monotonic_ns() - wall_ns, total)
