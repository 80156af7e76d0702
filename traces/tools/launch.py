"""Starts a program: bare, with the counter, recorded, or recorded with the counter below the recorder."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

# Programs do not inherit the caller's environment.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


@dataclass
class Launcher:
    """Words to put before a command, and variables to add to its environment."""

    words: list = field(default_factory=list)
    variables: dict = field(default_factory=dict)

    def start(self, command, cwd, env=None, **streams):
        """Starts `command`. Returns its Popen, or that of hksim around it."""
        variables = {**ENVIRONMENT, **self.variables, **(env or {})}
        return subprocess.Popen([*self.words, *command], cwd=cwd, env=variables, **streams)


class Launchers:
    """Creates launchers. Each counter and each recording gets a separate folder."""

    def __init__(self, hksim, counter, timed, work):
        self.hksim, self.counter, self.timed, self.work = str(hksim), str(counter), str(timed), Path(work)
        self.folders = 0
        # A program may copy its environment, so it gets the same number of variables with the counter: the counter's
        # two, and these.
        self.padding = {f"PADDING_{i}": "x" for i in range(self._variables_of_record() - 2)}

    def timed_bare(self):
        """The program alone: the launcher, and the file with its times."""
        file = self._folder("timed") / "took"
        return Launcher(words=[self.timed, str(file)]), file

    def timed_recorded(self):
        """The same below the recorder."""
        file = self._folder("timed") / "took"
        return Launcher(words=[*self._record(self._folder("recorded")), self.timed, str(file)]), file

    def counted(self):
        """The counter alone: the launcher, and the folder of its files."""
        folder = self._folder("counted")
        variables = {**self._counter(folder), **self.padding}
        # The address of the stack, which environments move, affects conservative garbage collectors: slashes,
        # since they change nothing else.
        variables["CALL_COUNTER_DIR"] += "/" * (97 * self.folders % 3000)
        return Launcher(variables=variables), folder

    def recorded(self):
        """The recorder alone: the launcher, and the folder of its traces."""
        folder = self._folder("recorded")
        return Launcher(words=self._record(folder)), folder

    def recorded_and_counted(self):
        """The recorder, which calls the counter, which calls the allocator."""
        traces, counts = self._folder("recorded"), self._folder("counted")
        return Launcher(words=self._record(traces), variables=self._counter(counts)), traces, counts

    def _record(self, folder):
        return [self.hksim, "record", "-o", str(folder / "app.hkt"), "--"]

    def _counter(self, folder):
        return {"LD_PRELOAD": self.counter, "CALL_COUNTER_DIR": str(folder)}

    def _folder(self, kind):
        self.folders += 1
        folder = self.work / f"{kind}.{self.folders}"
        folder.mkdir()
        # Servers have separate users.
        folder.chmod(0o777)
        return folder

    def _variables_of_record(self):
        """The number of variables that `hksim record` adds."""
        command = Launcher(words=self._record(self._folder("recorded"))).start(
            ["env"], cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return len(command.communicate()[0].splitlines()) - len(ENVIRONMENT)
