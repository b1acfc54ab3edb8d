"""The real host on a pseudo-terminal, with the whole gates of a board in Verilator at the other end."""

import contextlib
import functools
import os
import select
import threading
import time
import tty

import numpy as np
import pytest
import torch
from lnstesting import exactly

import fpga
import hdl
from fpga import BoardError, SimulatedBoard, connect
from fpga.bridge.protocol import FLUSH, REPLY, Command, Frame, FrameReader, Identity, encode
from sim import golden, hardware_function, payloads
from sim.stimulus import generate
from xlnstorch import from_words, lns8, lns16, lnstensor

pytestmark = pytest.mark.sim

DIGEST = bytes(range(16))


def adder():
    return hdl.AddSubtract(format=lns8)


@functools.cache
def simulated(make=adder) -> SimulatedBoard:
    """Return a board that stays there for all tests."""
    return SimulatedBoard(make(), digest=DIGEST)


@pytest.fixture
def board():
    with connect(simulated().port, timeout=10) as found:  # the machine may be busy
        yield found


def pairs(count, seed=0):
    a, b = torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (2, count)))
    return from_words(a, lns8), from_words(b, lns8)


def check_sum(board, count=2000, seed=0):
    a, b = pairs(count, seed)
    assert torch.equal(board.run("add", a, b).result.words, (a + b).words)


# What it does ---------------------------------------------------------------------------------------------------------


def test_all_pairs_of_words(board):
    a, b = torch.meshgrid(torch.arange(256), torch.arange(256), indexing="ij")
    a, b = from_words(a, lns8), from_words(b, lns8)
    answer = board.run("sub", a, b)
    assert torch.equal(answer.result.words, (a - b).words)
    assert answer.flags.shape == a.shape and answer.flags.any()
    assert board.link.recoveries == 0
    # Three bytes of operands and two of results in a payload; of 255 bytes of a body, seven more around them.
    frames = -(-(1 << 16) // 84)
    assert board.link.received - frames * 7 == pytest.approx(2 << 16, abs=200)


def converter():
    return hdl.ToFloat(format=lns16, dtype=torch.float16)


@pytest.mark.parametrize("make", [lambda: hdl.ALU(format=lns8, converters=("float16", "fixed")), converter])
def test_units(make):
    with SimulatedBoard(make()) as simulated, connect(simulated.port) as board:
        unit = board.unit
        vectors = generate("random", unit, seed=3, count=3000)
        expected = payloads.to_rows(unit.o.payload.shape(), golden.evaluate(unit, vectors), len(vectors))
        outcome = board.gates.run(payloads.to_rows(unit.i.payload.shape(), vectors.fields(unit), len(vectors)))
        assert not outcome.wrong(expected).any() and not outcome.problems
        assert board.self_test(seed=5) == dict.fromkeys(unit.operations, True)


def test_what_is_no_word():
    with SimulatedBoard(converter()) as simulated, connect(simulated.port) as board:
        x = lnstensor([[1.0, -2.0], [0.0, 4.0]], format=lns16)
        assert board.identity.unit == "to_float:dtype=float16"
        assert torch.equal(board.run("to_float", x).result, torch.tensor([[1, -2], [0, 4.0]], dtype=torch.float16))


@pytest.mark.parametrize("unit", ["dot:lanes=2", pytest.param("matvec:lanes=2,rows=2", marks=pytest.mark.slow)])
def test_units_that_sum_several_payloads(unit):
    from sim.naming import named_unit
    from sim.segments import make_segment

    with SimulatedBoard(named_unit(unit, lns8)) as simulated, connect(simulated.port) as board:
        segment = make_segment("random", board.unit, 1, 3000, None)
        fields = segment.vectors.fields(board.unit)
        rows = payloads.to_rows(board.unit.i.payload.shape(), fields, len(segment.vectors))
        expected = payloads.to_rows(board.unit.o.payload.shape(), segment.expected, len(segment))
        for _ in range(2):  # a run begins with a reset
            outcome = board.gates.run(rows, segment.completes)
            assert not outcome.wrong(expected).any() and not outcome.problems
        with pytest.raises(ValueError, match=f"^{board.unit.name} sums several payloads, so it is no function"):
            board.run("dot", *pairs(1))
        # A frame in the middle that is lost: all is sent again.
        with relay(simulated.port, to_board=Fault(2000, drop)) as line, connect(line) as board:
            outcome = board.gates.run(rows, segment.completes)
            assert not outcome.wrong(expected).any() and not outcome.problems
            assert board.link.recoveries >= 1


def test_it_is_an_operation_of_a_network(board):
    a, b = (lnstensor(x, format=lns8, requires_grad=True) for x in ([1.0, 2.0], [3.0, -0.5]))
    total = hardware_function(board.function, "add")(a, b)
    total.sum().backward()
    assert torch.equal(total.words, (a + b).words)
    assert a.grad.value.tolist() == [1, 1]


def test_hosts_come_and_go(board):
    board.close()
    with pytest.raises(BoardError, match=exactly(f"the port {simulated().port!r} is closed")):
        check_sum(board)
    for seed in range(3):
        with connect(simulated().port) as again:
            check_sum(again, seed=seed)


def test_progress_may_end_it(board):
    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        board.gates.run(np.zeros((5000, 1), np.uint64), progress=stop)
    check_sum(board)
    assert board.link.recoveries == 0


# What is not there, or another ----------------------------------------------------------------------------------------


def test_a_port_that_does_not_exist():
    message = "port must be a serial port such as /dev/ttyUSB1, but '/dev/ttyNONE' does not exist"
    with pytest.raises(BoardError, match=exactly(message)):
        connect("/dev/ttyNONE")


def test_a_file_that_is_no_port(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(BoardError, match=exactly(f"port {str(file)!r} cannot be opened: it is no serial port")):
        connect(str(file))


def test_a_port_in_use(board):
    message = f"port {simulated().port!r} cannot be opened: another program uses it"
    with pytest.raises(BoardError, match=exactly(message)):
        connect(simulated().port)
    check_sum(board)


def test_nothing_answers():
    master, slave = os.openpty()
    tty.setraw(slave)
    port = os.ttyname(slave)
    message = f"no board answers at {port!r} within 0.2 s"
    with pytest.raises(BoardError, match=exactly(message)):
        connect(port, timeout=0.05)
    os.close(master)
    os.close(slave)


@contextlib.contextmanager
def pretended(answer):
    """Be a board that answers each frame with the one that a function makes of it."""
    master, slave = os.openpty()
    tty.setraw(slave)
    stop = threading.Event()

    def run():
        reader = FrameReader()
        while not stop.is_set():
            if select.select([master], [], [], 0.02)[0]:
                os.write(master, b"".join(encode(answer(frame)) for frame in reader.feed(os.read(master, 4096))))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield os.ttyname(slave)
    finally:
        stop.set()
        thread.join()
        os.close(master)
        os.close(slave)


def test_a_board_that_answers_something_else():
    identity = Identity.of(adder(), buffer=2048).to_bytes()

    def answer(frame):
        what = Command.IDENTIFY if frame.command == Command.IDENTIFY else Command.TEST
        return Frame(what | REPLY, frame.sequence, identity)

    with pretended(answer) as port, connect(port) as board:
        message = f"the board at {port!r} failed 4 times in a row: it answers what it was not asked"
        with pytest.raises(BoardError, match=exactly(message)):
            check_sum(board, 10)


def test_a_board_of_another_version():
    def answer(frame):
        return Frame(frame.command | REPLY, frame.sequence, b"\x07whatever")

    with pretended(answer) as port:
        message = f"the board at {port!r} cannot be used: the board must speak version 1 of the protocol, not 07"
        with pytest.raises(BoardError, match=exactly(message)):
            connect(port)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"digest": "ff" * 16},
            f"the board at PORT must have the build {'ff' * 16}, not {DIGEST.hex()}",
        ),
        (
            {"expect": hdl.AddSubtract(format=lns16)},
            "the board at PORT must have add of lns16 (exact adder), not add of lns8 (exact adder)",
        ),
        (
            {"expect": hdl.Multiply(format=lns8)},
            "the board at PORT must have multiply of lns8 (exact adder), not add of lns8 (exact adder)",
        ),
    ],
)
def test_another_board(parameters, message):
    port = simulated().port
    with pytest.raises(BoardError, match=exactly(message.replace("PORT", repr(port)))):
        connect(port, **parameters)
    with connect(port, expect=adder(), digest=DIGEST) as board:  # the port was given back
        check_sum(board)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"baud": 0}, "baud must be a positive integer, not 0"),
        ({"timeout": 0}, "timeout must be positive, in seconds, not 0"),
        ({"digest": "xyz"}, "digest must be 16 bytes, or 32 hexadecimal digits, not 'xyz'"),
        ({"digest": b"short"}, "digest must be 16 bytes, or 32 hexadecimal digits, not b'short'"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=exactly(message)):
        connect(simulated().port, **parameters)


def test_bad_operands_are_told_before_anything_is_sent(board):
    sent = board.link.sent
    with pytest.raises(ValueError, match=exactly("operation must be one of add, sub, not 'mul'")):
        board.run("mul", *pairs(3))
    with pytest.raises(TypeError, match=r"^a of add must be an LNSTensor of "):
        board.run("add", lnstensor(1.0, format=lns16), lnstensor(1.0, format=lns16))
    assert board.link.sent == sent


# What happens to a line -----------------------------------------------------------------------------------------------


class Fault:
    """What happens to the bytes of a direction: those from `place` on, `count` of them, change, each as it says."""

    def __init__(self, place=0, change=lambda byte: bytes([byte]), count=1, step=1):
        self._places, self._change, self.seen = range(place, place + count * step, step), change, 0

    def __call__(self, data):
        begin, self.seen = self.seen, self.seen + len(data)
        return b"".join(
            self._change(byte) if place in self._places else bytes([byte]) for place, byte in enumerate(data, begin)
        )


def flip(byte):
    return bytes([byte ^ 4])


def drop(byte):
    return b""


def insert(byte):
    return b"noise" + bytes([byte])


@contextlib.contextmanager
def relay(port, to_board=None, to_host=None):
    """Be a line with faults between a port and the one that is returned."""
    faults = (to_board or Fault(), to_host or Fault())
    master, slave = os.openpty()
    tty.setraw(slave)
    other = os.open(port, os.O_RDWR | os.O_NOCTTY)
    stop = threading.Event()

    def run():
        ways = {master: (other, faults[0]), other: (master, faults[1])}
        while not stop.is_set():
            for file in select.select(list(ways), [], [], 0.02)[0]:
                target, fault = ways[file]
                os.write(target, fault(os.read(file, 4096)))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield os.ttyname(slave)
    finally:
        stop.set()
        thread.join()
        for file in (master, slave, other):
            os.close(file)


# A connection takes 271 bytes to the board, and some hundred from it.
@pytest.mark.parametrize("fault", [(flip, 1), (drop, 1), (drop, 300), (insert, 1)])
@pytest.mark.parametrize("way", ["to_board", "to_host"])
@pytest.mark.parametrize("place", [500, 2345])
def test_what_is_lost_or_damaged_is_asked_for_again(way, place, fault):
    fault = Fault(place, *fault)
    with relay(simulated().port, **{way: fault}) as port, connect(port, timeout=0.3) as board:
        check_sum(board, 3000)
        assert fault.seen > 3000
        assert board.link.recoveries >= 1


def test_a_line_that_stays_bad():
    fault = Fault(300, flip, count=10**6, step=20)
    with relay(simulated().port, to_host=fault) as port, connect(port, timeout=0.1) as board:
        with pytest.raises(
            BoardError, match=f"^no board answers at {port!r} within 0.4 s; before: no reply within 0.1 s"
        ):
            check_sum(board)
    with connect(simulated().port) as board:
        check_sum(board)


def test_noise_from_the_board_is_skipped(board):
    sender = os.open(simulated().port, os.O_RDWR | os.O_NOCTTY)
    os.write(sender, b"\xa5\xa5\xa5 noise that another program sends to the board")
    os.close(sender)
    check_sum(board)


def test_a_frame_that_somebody_left_unfinished_does_not_delay():
    sender = os.open(simulated().port, os.O_RDWR | os.O_NOCTTY)
    os.write(sender, encode(Frame(Command.RUN, 1, bytes(200)))[:9])
    os.close(sender)
    with connect(simulated().port, timeout=10) as board:
        identify = len(encode(Frame(Command.IDENTIFY, 0, b"")))
        assert board.link.sent == len(FLUSH) + 2 * identify  # none had to be sent again
        check_sum(board)


def test_unplugged_in_mid_run():
    gone = SimulatedBoard(adder())
    board = connect(gone.port)
    threading.Timer(0.3, gone.close).start()
    begin = time.monotonic()
    with pytest.raises(BoardError, match=f"^the board at {gone.port!r} is gone: "):
        while time.monotonic() < begin + 30:
            check_sum(board)
    with pytest.raises(BoardError, match=exactly(f"the port {gone.port!r} is closed")):
        check_sum(board)


def test_the_host_does_not_wait_for_each_reply(board):
    # The board has one frame to answer while the next ones come, or it would take twice as long.
    rows = np.zeros((84 * 20, 1), np.uint64)
    begin = simulated().clocks
    board.gates.run(rows)
    spent = (simulated().clocks - begin) / (10 * simulated().divisor)
    assert spent < 1.5 * 20 * 262


def test_the_package_has_what_a_user_needs():
    assert set(fpga.__all__) <= set(dir(fpga))
    with pytest.raises(AttributeError, match=exactly("module 'fpga' has no attribute 'nothing'")):
        fpga.nothing  # noqa: B018
