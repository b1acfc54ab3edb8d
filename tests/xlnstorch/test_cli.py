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
