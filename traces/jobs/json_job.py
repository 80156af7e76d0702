"""Encodes and decodes records with the json module: json_job.py RECORDS. The same calls in every run."""

import json
import random
import sys

random.seed(7)
records = [
    {"id": i, "name": f"user-{i}", "score": random.random(), "tags": [f"t{random.randrange(50)}" for _ in range(4)]}
    for i in range(int(sys.argv[1]))
]
for _ in range(5):
    text = json.dumps(records)
    records = json.loads(text)
print(f"{len(records)} records, {len(text)} bytes of JSON")
