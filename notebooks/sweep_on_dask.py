"""Runs a sweep in shards on a Dask cluster, and merges them: the result of the single run, `elapsed_s` apart.

    sweep_on_dask.py --shards 64 [--scheduler ADDRESS] [--journals FOLDER] -o RESULT.json SWEEP_ARGUMENT...

Without --scheduler, a cluster on this machine is used, one worker per processor. Every worker needs hksim (the same version) and the
files under the same names. A shard whose worker is lost is run again by another; with --journals, a folder that all workers
share, it goes on from its last finished row.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import dask
from dask.distributed import Client, LocalCluster, as_completed

# How many workers may be lost with the same shard before the shard counts as the cause. Dask's default is 3.
LOSSES_MAX = 10


def run_shard(hksim: str, arguments: list[str], number: int, shards: int, journals: str | None) -> bytes:
    """The result of a shard as JSON."""
    # If the worker is killed, the kernel ends the sweep, too.
    command = ["setpriv", "--pdeathsig", "KILL", hksim, "sweep", *arguments, "--shard", f"{number}/{shards}", "--jobs", "1", "--format", "json"]
    if journals is not None:
        command += ["--resume", str(Path(journals) / f"{number}-of-{shards}.jsonl")]
    ran = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL)
    if ran.returncode != 0:
        raise RuntimeError(f"shard {number}/{shards}: {ran.stderr.decode(errors='replace').strip()}")
    return ran.stdout


def sweep(client: Client, hksim: str, arguments: list[str], shards: int, journals: str | None, output: str) -> None:
    """Runs all shards on the cluster and writes the merged result."""
    numbers = range(1, shards + 1)
    tasks = [client.submit(run_shard, hksim, arguments, number, shards, journals, pure=False) for number in numbers]
    with tempfile.TemporaryDirectory() as folder:
        paths = {task.key: str(Path(folder) / f"{number}.json") for task, number in zip(tasks, numbers)}
        # Results are written as they come, so that memory holds one shard.
        for done, (task, result) in enumerate(as_completed(tasks, with_results=True), start=1):
            Path(paths[task.key]).write_bytes(result)
            print(f"{done} of {shards} shards", file=sys.stderr)
        subprocess.run([hksim, "merge", *paths.values(), "--format", "json", "-o", output], check=True)


def local_cluster() -> LocalCluster:
    """One worker per processor. Listens on the loopback interface only."""
    dask.config.set({"distributed.scheduler.allowed-failures": LOSSES_MAX})
    return LocalCluster(host="127.0.0.1", threads_per_worker=1, dashboard_address=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, required=True, help="number of shards; several per worker")
    parser.add_argument("--scheduler", help="address of a running cluster's scheduler, or a scheduler file")
    parser.add_argument("--journals", help="shared folder for the progress of shards")
    parser.add_argument("--hksim", default="hksim", help="the command on the workers")
    parser.add_argument("-o", "--output", required=True)
    ours, arguments = parser.parse_known_args()
    if ours.scheduler is None:
        with local_cluster() as cluster, Client(cluster) as client:
            sweep(client, ours.hksim, arguments, ours.shards, ours.journals, ours.output)
        return
    is_file = ours.scheduler.endswith(".json")
    with Client(scheduler_file=ours.scheduler) if is_file else Client(ours.scheduler) as client:
        sweep(client, ours.hksim, arguments, ours.shards, ours.journals, ours.output)


if __name__ == "__main__":
    main()
