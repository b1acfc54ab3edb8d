"""Run sums and products on a board at a serial port, or without one on a simulated board, and let it test itself."""

import argparse
import contextlib

import torch

import hdl
from fpga import SimulatedBoard, connect
from xlnstorch import lns12, lnstensor

parser = argparse.ArgumentParser(description="Run an ALU on a board.")
parser.add_argument("port", nargs="?", help="the board's serial port; by default a board with an ALU is simulated")
port = parser.parse_args().port

with contextlib.ExitStack() as stack:
    if port is None:
        unit = hdl.ALU(format=lns12, converters=())
        port = stack.enter_context(SimulatedBoard(unit)).port
    board = stack.enter_context(connect(port))
    print(f"{port}: {board.identity}, build {board.identity.digest.hex()}")

    torch.manual_seed(0)
    a, b = (lnstensor(torch.randn(1000), format=board.unit.format) for _ in range(2))
    for operation, expected in (("add", a + b), ("mul", a * b)):
        answer = board.run(operation, a, b)
        equal = torch.equal(answer.result.words, expected.words)
        print(f"{operation}: {len(a):,} results {'equal' if equal else 'differ from'} PyTorch's")

    tested = board.self_test(operations=["add", "mul"])
    print(f"self-test: {', '.join(f'{name} {passed}' for name, passed in tested.items())}")
