"""The table of system times, and its page docs/lab/system-time.md."""

import pathlib

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/lab/system-time.md"
HEAD = pathlib.Path(__file__).with_name("page-head.md")
TABLE_HEAD = """| Case | Repetitions | Predicted, ms | Measured, ms: median (least to most) | Measured / middle | Inside |
|---|--:|--:|--:|--:|---|"""


def line(row):
    """A row of the table."""
    counts = f"; counts differ: {row['wrong_counts']}" if row["wrong_counts"] else ""
    if "skipped" in row:
        return f"| {row['case']} | | skipped: {row['skipped']}{counts} | | | |"
    low, median, high = (seconds * 1e3 for seconds in row["predicted_s"])
    least, middle, most = (seconds * 1e3 for seconds in row["measured_s"])
    verdict = "yes" if row["inside"] else "**no**"
    return (
        f"| {row['case']} | {row['times']} | {low:.1f} to {high:.1f} ({median:.1f}) "
        f"| {middle:.1f} ({least:.1f} to {most:.1f}) | {middle / median:.2f} | {verdict}{counts} |"
    )


def write(result):
    """Writes the page."""
    judged = [row for row in result["rows"] if "inside" in row]
    head = HEAD.read_text(encoding="utf-8").rstrip().format(
        machine=result["machine"],
        kernel=result["kernel"],
        runs=result["runs"],
        cases=len(judged),
        inside=sum(row["inside"] for row in judged),
    )
    lines = [head, "", TABLE_HEAD, *map(line, result["rows"])]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
