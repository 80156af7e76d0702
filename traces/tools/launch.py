"""Starts a program: bare, with the counter, with the recorder, or with both (the recorder then calls the counter)."""

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
        """Starts `command`. Returns its Popen, or hksim's if hksim starts it."""
        variables = {**ENVIRONMENT, **self.variables, **(env or {})}
        return subprocess.Popen([*self.words, *command], cwd=cwd, env=variables, **streams)


class Launchers:
    """Creates launchers. Each counter and each recording gets a separate folder."""

    def __init__(self, hksim, counter, timed, work):
        self.hksim, self.counter, self.timed, self.work = str(hksim), str(counter), str(timed), Path(work)
        self.folders = 0
        # A program may copy its environment. So it gets the same number of variables with the counter as with the
        # recorder: the counter's two, and these.
        self.padding = {f"PADDING_{i}": "x" for i in range(self._variables_of_record() - 2)}

    def timed_bare(self):
        """For the program alone: the launcher, and the file with the program's times."""
        file = self._folder("timed") / "took"
        return Launcher(words=[self.timed, str(file)]), file

    def timed_recorded(self):
        """For the recorded program: the launcher, and the file with the program's times."""
        file = self._folder("timed") / "took"
        return Launcher(words=[*self._record(self._folder("recorded")), self.timed, str(file)]), file

    def counted(self):
        """For the counter alone: the launcher, and the folder of the counter's files."""
        folder = self._folder("counted")
        variables = {**self._counter(folder), **self.padding}
        # The size of the environment determines the stack's address, which affects conservative garbage collectors. So
        # this adds a varying number of slashes to the path, which have no other effect.
        variables["CALL_COUNTER_DIR"] += "/" * (97 * self.folders % 3000)
        return Launcher(variables=variables), folder

    def recorded(self):
        """For the recorder alone: the launcher, and the folder of its traces."""
        folder = self._folder("recorded")
        return Launcher(words=self._record(folder)), folder

    def recorded_and_counted(self):
        """For the recorder, which calls the counter, which calls the allocator: the launcher, and the folders of traces and counts."""
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
        # Servers may run as other users.
        folder.chmod(0o777)
        return folder

    def _variables_of_record(self):
        """The number of variables that `hksim record` adds."""
        command = Launcher(words=self._record(self._folder("recorded"))).start(
            ["env"], cwd=self.work, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return len(command.communicate()[0].splitlines()) - len(ENVIRONMENT)
