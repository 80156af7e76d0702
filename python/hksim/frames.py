"""Recordings as pandas data frames, by the readers of this package."""

from hksim import hkm, hkt


def pandas():
    """The module pandas. Raises an ImportError that says how to get it."""
    try:
        import pandas as pd
    except ImportError as why:
        raise ImportError("hksim returns pandas data frames, and pandas is missing: pip install 'hksim[pandas]'") from why
    return pd


def _frame(events, columns):
    """A data frame of events, whose whole numbers stay whole where some are missing."""
    rows = ({"time_ns": time_ns, "thread": thread, "event": event, **fields} for time_ns, thread, event, fields in events)
    frame = pandas().DataFrame.from_records(rows)
    columns = ["time_ns", "thread", "event", *columns]
    frame = frame.assign(**{column: None for column in columns if column not in frame.columns})
    return frame[columns + [column for column in frame.columns if column not in columns]].convert_dtypes()


def read_hkt(path):
    """The events of a trace of allocator calls, as a data frame with a row for each event.

    Columns: `time_ns`, `thread`, `event`, `object`, `size`, `site`, then the other fields that occur, as in
    docs/reference/trace-format.md. A field that an event does not have is missing.
    """
    return _frame(hkt.Trace(path), ["object", "size", "site"])


def read_hkm(path):
    """The events of a memory recording, as a data frame with a row for each event.

    Columns: `time_ns`, `thread`, `event`, `page`, for ranges of pages `pages_first` and `pages_end`, then the other fields
    that occur, as in docs/reference/memory-recording.md. The ranges of `remap` are `old_first` to `new_end`.
    """

    def flat(fields):
        for name, value in fields.items():
            if isinstance(value, list):
                yield f"{name}_first", value[0]
                yield f"{name}_end", value[1]
            else:
                yield name, value

    events = ((time_ns, thread, event, dict(flat(fields))) for time_ns, thread, event, fields in hkm.Recording(path))
    return _frame(events, ["page", "pages_first", "pages_end"])
