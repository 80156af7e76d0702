"""Runs a sweep on a local Dask cluster whose workers are killed on the way: check_dask.py HKSIM FOLDER TRACE.

Fails unless the result equals that of the single run, `elapsed_s` apart. Prints how many workers were killed.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from dask.distributed import Client

from sweep_on_dask import local_cluster, sweep

SHARDS = 12
KILLS = 4
DESIGNS = ["--superslab", "256K,512K,1M,2M,4M", "--huge", "never,thp", "--purge", "none,dontneed", "--meta", "inband,sidecar"]


def kill_workers(client: Client, killed: list[int], stop: threading.Event) -> None:
    """Kills a worker that is at work, several times. Dask starts another in its place."""
    choice = random.Random(17)
    while len(killed) < KILLS and not stop.wait(0.05):
        at_work = [address for address, tasks in client.processing().items() if tasks]
        if not at_work:
            continue
        pids = client.run(os.getpid, workers=[choice.choice(at_work)], on_error="ignore")
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        time.sleep(0.5)


def without_times(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if '"elapsed_s"' not in line]


def main() -> None:
    hksim, folder, trace = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    arguments = [trace, *DESIGNS]
    single, merged, journals = folder / "single.json", folder / "merged.json", folder / "journals"
    journals.mkdir()
    subprocess.run([hksim, "sweep", *arguments, "--format", "json", "-o", str(single)], check=True)
    killed: list[int] = []
    stop = threading.Event()
    with local_cluster() as cluster, Client(cluster) as client:
        killer = threading.Thread(target=kill_workers, args=(client, killed, stop))
        killer.start()
        try:
            sweep(client, hksim, arguments, SHARDS, str(journals), str(merged))
        finally:
            stop.set()
            killer.join()
    print(f"killed {len(killed)} workers")
    if not killed:
        sys.exit("no worker was killed: the sweep was too short")
    if without_times(single) != without_times(merged):
        sys.exit(f"{merged}: differs from {single}")


if __name__ == "__main__":
    main()
