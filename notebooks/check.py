"""Executes every notebook of this folder and writes the results to another folder: check.py FOLDER. Fails if a cell fails.

`check.py notebooks` updates the outputs that are part of the repository.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from jupyter_client import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient

TIMEOUT_S = 300


def execute(source: Path, target: Path) -> None:
    notebook = nbformat.read(source, as_version=4)
    resources = {"metadata": {"path": str(source.parent)}}
    with TemporaryDirectory() as folder:
        # The kernel uses sockets in the file system, so that nothing listens on the network.
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
        try:
            NotebookClient(notebook, km=kernel, timeout=TIMEOUT_S, resources=resources, record_timing=False).execute()
        finally:
            run_sync(kernel.shutdown_kernel)(now=True)
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(notebook, target)
    print(f"executed {source.name} -> {target}")


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    sources = sorted(Path(__file__).parent.glob("*.ipynb"))
    if not sources:
        sys.exit("no notebook was found")
    for source in sources:
        execute(source, target / source.name)


if __name__ == "__main__":
    main()
