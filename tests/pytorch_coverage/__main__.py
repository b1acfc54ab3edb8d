"""Measure everything, with all samples, and write ``expected.json`` and ``docs/coverage.md``."""

import argparse
import concurrent.futures
import multiprocessing
import sys

from rich.console import Console
from rich.progress import track

from . import page


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m pytorch_coverage", description=__doc__)
    parser.add_argument("names", nargs="*", help="entries to measure again; all by default")
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--page-only", action="store_true", help="write the page from expected.json")
    args = parser.parse_args()
    expected = page.load()
    tasks = [(d, n) for d, module in page.DATABASES.items() for n in module.entries()]
    if args.names:
        tasks = [task for task in tasks if task[1] in args.names]
    if not args.page_only:
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(args.jobs, mp_context=context) as pool:
            console = Console(stderr=True)
            results = zip(tasks, pool.map(page.record_task, tasks), strict=True)
            for (database, name), outcome in track(results, total=len(tasks), console=console):
                expected[database][name] = outcome
                page.save(expected)  # an interrupt loses nothing
    page.PAGE.write_text(page.render(expected))
    sys.stdout.write(page.summary(expected) + "\n")


if __name__ == "__main__":
    main()
