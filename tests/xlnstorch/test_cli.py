import subprocess
import sys

INTERRUPTED = """
import argparse

from amaranth.back import rtlil
from amaranth.hdl import Module, Signal

from xlnstorch import cli


def work(args):
    port = Signal()
    rtlil.convert(Module(), ports=[port])  # before the first of them Amaranth says nothing
    m = Module()
    raise KeyboardInterrupt


print(cli._run(argparse.Namespace(_run=work, command="verify")))
"""


def test_an_interrupt_amid_the_making_of_gates_says_nothing_of_what_is_left_unfinished():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("130\n", "lns verify: interrupted\n")


SWALLOWED = """
import signal
import time

from xlnstorch import cli


class Deleted:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)  # Python prints what a finalizer raises, and goes on


class Command:
    help = "work, and work on"

    def configure(self, parser):
        pass

    def run(self, args):
        Deleted()
        for _ in range(100):
            time.sleep(0.1)
        return 0


class Entry:
    name, value = "work", "nowhere"

    def load(self):
        return Command


cli.importlib.metadata.entry_points = lambda group: [Entry()]
print(cli.main(["work"]))
"""


def test_an_interrupt_that_comes_in_a_finalizer_is_not_lost():
    done = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("130\n", "lns work: interrupted\n")
