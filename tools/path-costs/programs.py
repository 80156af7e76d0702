"""Random programs and designs from which the costs of paths are measured."""

import csv

COLUMNS = ["time_ns", "thread", "op", "object", "size", "align_log2", "call"]
SHARE_OF_LONG_PAUSES = 0.01
SHARE_OF_COMMON_HABITS = 0.5


class Program:
    """A random program, as rows of the CSV form. Its habits change every few hundred calls, so that each path of the
    allocator runs often in some parts of the trace and rarely in others."""

    def __init__(self, draw):
        self.draw = draw
        self.threads = draw.choice([1, 1, 1, 2, 4])
        self.live = {}
        self.order = []
        self.free_ids = []
        self.time_ns = 0
        self.rows = []
        self.has_started = set()

    def row(self, op, thread=None, **fields):
        thread = self.draw.randrange(self.threads) if thread is None else thread
        pause = self.draw.choice([5_000, 40_000_000]) if self.draw.random() < SHARE_OF_LONG_PAUSES else 100
        self.time_ns += pause
        self.rows.append({"time_ns": self.time_ns, "thread": thread, "op": op, **fields})

    def new_habits(self):
        draw = self.draw
        if draw.random() < SHARE_OF_COMMON_HABITS:
            return self.common_habits()
        self.live_wanted = draw.choice([1, 8, 60, 400, 3000])
        self.sizes = [self.random_size() for _ in range(draw.choice([1, 3, 12, 60]))]
        self.calls = [
            draw.choice([1, 1, 0]),  # malloc
            draw.choice([0, 0, 0.2, 1]),  # calloc
            draw.choice([0, 0, 0.1, 0.6]),  # posix_memalign and its like
            draw.choice([0, 0, 0.1]),  # realloc of null
        ]
        if not any(self.calls):
            self.calls[0] = 1
        self.realloc_share = draw.choice([0, 0, 0.1, 0.5])
        self.usable_share = draw.choice([0, 0, 0.1, 0.4])
        self.freed = draw.choice(["newest", "oldest", "random", "random"])
        self.remote_share = draw.choice([0, 0.05, 0.5, 1])

    def common_habits(self):
        """Small blocks of a few sizes, most of which the fast paths serve."""
        draw = self.draw
        self.live_wanted = draw.choice([1, 8, 60, 400])
        largest = draw.choice([1024, 1024, 1024, 8000])
        self.sizes = [draw.randrange(1, largest + 1) for _ in range(draw.choice([1, 3, 12]))]
        self.calls = draw.choice([[1, 0, 0, 0], [1, 0, 0, 0], [1, 0.3, 0, 0], [0, 1, 0, 0], [1, 0, 0.2, 0]])
        self.realloc_share = draw.choice([0, 0, 0, 0.2])
        self.usable_share = draw.choice([0, 0, 0, 0.5])
        self.freed = draw.choice(["newest", "oldest", "random"])
        self.remote_share = draw.choice([0, 0, 0, 0.1])

    def random_size(self):
        kind = self.draw.random()
        if kind < 0.55:
            return self.draw.randrange(1, 1025)
        if kind < 0.75:
            return self.draw.randrange(1025, 9000)
        if kind < 0.9:
            return int(2 ** self.draw.uniform(13, 17))
        if kind < 0.97:
            return int(2 ** self.draw.uniform(17, 21))
        return int(2 ** self.draw.uniform(21, 23))

    def allocate(self):
        draw = self.draw
        number = self.free_ids.pop() if self.free_ids else len(self.live)
        size = draw.choice(self.sizes)
        kind = draw.choices(["malloc", "calloc", "align", "realloc"], self.calls)[0]
        align = 0
        call = kind
        if kind == "align":
            call = draw.choice(["posix_memalign", "posix_memalign", "aligned_alloc", "memalign"])
            align = draw.choice([3, 4, 4, 5, 6, 6, 12, 14])
        thread = draw.randrange(self.threads)
        self.row("alloc", thread, object=number, size=size, align_log2=align, call=call)
        self.live[number] = (size, thread)
        self.order.append(number)

    def chosen(self):
        at = {"newest": len(self.order) - 1, "oldest": 0}.get(self.freed)
        at = self.draw.randrange(len(self.order)) if at is None else at
        # The last takes the place of the chosen one, unless order matters.
        if self.freed == "random":
            self.order[at], self.order[-1] = self.order[-1], self.order[at]
            at = -1
        return self.order.pop(at)

    def change(self):
        draw, kind = self.draw, self.draw.random()
        if kind < self.realloc_share:
            number = draw.choice(self.order)
            size, thread = self.live[number]
            size = max(1, draw.choice([size + 1, size * 2, size // 3, size + 5000, draw.choice(self.sizes)]))
            self.live[number] = (min(size, 8 << 20), thread)
            self.row("realloc", thread, object=number, size=self.live[number][0], call="realloc")
        elif kind < self.realloc_share + self.usable_share:
            self.row("usable-size", object=draw.choice(self.order))
        else:
            number = self.chosen()
            _, thread = self.live.pop(number)
            self.free_ids.append(number)
            self.row("free", None if draw.random() < self.remote_share else thread, object=number)

    def run(self, events):
        self.new_habits()
        while len(self.rows) < events:
            if self.draw.random() < 0.003:
                self.new_habits()
            if self.threads > 1 and self.draw.random() < 0.0005:
                self.row("thread-exit")
            if not self.order or (len(self.order) < self.live_wanted and self.draw.random() < 0.8):
                self.allocate()
            else:
                self.change()
        return self.rows


def write_csv(rows, path):
    with open(path, "w", newline="", encoding="ascii") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)


def random_design(draw, constant):
    """A random design that programs can run on. With `constant`, one that the object has compiled-in sizes for."""
    design = {
        "huge": draw.choice(["never", "thp", "thp", "collapse"]),
        "prefault": draw.choice(["off", "off", "populate", "populate-write", "populate-read", "touch", "memset"]),
        "prefault-scope": draw.choice(["superslab", "slab", "init"]),
        "cache": draw.choice([0, 1, 4]),
        "huge-heaps": draw.choice([0, 1, 8]),
        "huge-fill": draw.choice([0, 0, 50, 100]),
        "warm-slabs": draw.choice([0, 0, 2]),
        "purge": draw.choice(["none", "dontneed", "dontneed", "unmap"]),
        "purge-delay": draw.choice(["0ns", "10us", "100ms", "100ms"]),
        "purge-curve": draw.choice(["step", "step", "smoothstep"]),
        "purge-spans": draw.choice(["no", "yes"]),
        "free-order": draw.choice(["lifo", "lifo", "fifo", "address"]),
        "slab-choice": draw.choice(["oldest", "oldest", "newest", "fullest", "lowest"]),
        "huge-cache": draw.choice(["0", "1M", "64M"]),
        "arena": "4G",
    }
    if constant:
        return design
    superslab = draw.choice([256 << 10, 1 << 20, 2 << 20, 2 << 20, 4 << 20, 16 << 20])
    slab = draw.choice([size for size in (16 << 10, 64 << 10, 128 << 10) if superslab // 512 <= size <= superslab])
    header = draw.choice(["none", "none", "full", "light", "off"])
    return design | {
        "superslab": superslab,
        "slab": slab,
        "classes": draw.choice(["default", "default", "hakmem", "linear", "spacing-2", "spacing-8", "16/64/1008/5008"]),
        "header": header,
        "header-bytes": 16,
        "meta": draw.choice(["inband", "inband", "sidecar"]),
        "carve": draw.choice(["page", "page", "bump", "eager"]),
        "front-cache": draw.choice([0, 0, 1, 8, 32]),
    }
