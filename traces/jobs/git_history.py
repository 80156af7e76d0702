"""A history for `git fast-import`: git_history.py COMMITS. The same commits in every run."""

import random
import sys

random.seed(7)
words = [f"word{i}" for i in range(3000)]


def line():
    return " ".join(random.choices(words, k=random.randrange(4, 14)))


files = {f"dir{i % 7}/file{i}.txt": [line() for _ in range(random.randrange(20, 400))] for i in range(60)}
out = sys.stdout.buffer
for commit in range(int(sys.argv[1])):
    changed = list(files) if commit == 0 else random.sample(list(files), 6)
    for name in changed:
        for _ in range(random.randrange(1, 9)):
            files[name][random.randrange(len(files[name]))] = line()
    message = f"Commit {commit}\n".encode()
    out.write(b"commit refs/heads/main\ncommitter A <a@example.org> %d +0000\n" % (1700000000 + 60 * commit))
    out.write(b"data %d\n%s" % (len(message), message))
    for name in changed:
        text = "\n".join(files[name]).encode() + b"\n"
        out.write(b"M 100644 inline %s\ndata %d\n%s" % (name.encode(), len(text), text))
