"""Time of a whole index build against ``email.message_from_bytes`` alone, over the same messages, in one run.

    uv run benchmarks/build_index.py --source maildir:enron_mail.tar.gz

Both sides read the source in the same way. The baseline parses every message with the standard library in one process
and throws the result away; the build parses, cleans, finds duplicates and threads, and writes an embedded index. Each
side runs in a process of its own, alternating, and the best of ``--repeat`` runs counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from email import message_from_bytes
from pathlib import Path

from rich.console import Console
from rich.table import Table

from corpus_index.backends import open_writer
from corpus_index.pipeline import CleaningOptions, prepare
from corpus_index.sources import read_items
from corpus_index.sources.items import RawMail


def parse_alone(source: str) -> dict[str, float]:
    """Read every message and parse it with the standard library."""
    messages = 0
    for item in read_items(source):
        if isinstance(item, RawMail):
            message_from_bytes(item.data)
            messages += 1
    return {"messages": messages}


def read_alone(source: str) -> dict[str, float]:
    """Read every message and do nothing with it: what both sides share."""
    return {"messages": sum(1 for item in read_items(source) if isinstance(item, RawMail))}


def build(source: str, workers: int | None) -> dict[str, float]:
    """The whole build into a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        documents, report = prepare(source, CleaningOptions(workers=workers))
        stats = open_writer(f"embedded:{Path(folder) / 'index'}").build(documents)
        return {"messages": report.read, "kept": report.kept, "bytes": stats.bytes_on_disk}


def measured(side: str, source: str, workers: int | None) -> dict[str, float]:
    """Run one side here and add wall seconds, CPU seconds of it and its children, and peak memory in MB."""
    started = time.perf_counter()
    figures = {"read": read_alone, "parse": parse_alone}[side](source) if side != "build" else build(source, workers)
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    figures["wall"] = time.perf_counter() - started
    figures["cpu"] = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    figures["peak_mb"] = own.ru_maxrss / 1024
    figures["worker_peak_mb"] = children.ru_maxrss / 1024
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, help="maildir:PATH, mbox:PATH or eml:PATH")
    parser.add_argument("--workers", type=int, default=None, help="parsing processes (default: one a core)")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each side; the fastest counts")
    parser.add_argument("--side", choices=("read", "parse", "build"), help="run one side only and print JSON")
    options = parser.parse_args()
    if options.side:
        print(json.dumps(measured(options.side, options.source, options.workers)))
        return
    best: dict[str, dict[str, float]] = {}
    for _ in range(options.repeat):
        for side in ("read", "parse", "build"):
            command = [sys.executable, __file__, "--source", options.source, "--side", side]
            command += [] if options.workers is None else ["--workers", str(options.workers)]
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            figures: dict[str, float] = json.loads(result.stdout.splitlines()[-1])
            if side not in best or figures["wall"] < best[side]["wall"]:
                best[side] = figures
    show(best)


def show(best: dict[str, dict[str, float]]) -> None:
    names = {"read": "reading alone", "parse": "reading + message_from_bytes", "build": "whole build"}
    table = Table(title="Index build against the standard-library parser")
    for column in ("", "messages", "seconds", "messages/s", "CPU seconds", "peak MB", "worker peak MB", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    for side, figures in best.items():
        table.add_row(
            names[side],
            f"{figures['messages']:,.0f}",
            f"{figures['wall']:.2f}",
            f"{figures['messages'] / figures['wall']:,.0f}",
            f"{figures['cpu']:.2f}",
            f"{figures['peak_mb']:.0f}",
            f"{figures['worker_peak_mb']:.0f}",
            f"{figures['wall'] / best['parse']['wall']:.2f}",
        )
    console = Console()
    console.print(table)
    figures = best["build"]
    console.print(f"kept {figures['kept']:,.0f} of {figures['messages']:,.0f}; index {figures['bytes'] / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
