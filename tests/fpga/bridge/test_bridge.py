"""A board's whole gates in Verilator, asked at their UART pins: every command, every error, and noise."""

import functools

import numpy as np
import pytest
import torch
from lnstesting import exactly

import hdl
from fpga.bridge import Bridge, Command, ErrorKind, Identity, Status
from fpga.bridge.protocol import FLUSH, REPLY, START, Frame, FrameReader, encode
from fpga.bridge.selftest import expected_signature
from fpga.simulated_board import NO_STOP, SILENCE, BoardModel
from xlnstorch import from_words, lns8

pytestmark = pytest.mark.sim

# In bits: longer than any answer waits for, and longer than a frame may pause.
REST, CUT = 3000, 60_000


@functools.cache
def board() -> BoardModel:
    """Return a board with an adder: three bytes of operands, two of results."""
    return BoardModel(hdl.AddSubtract(format=lns8), digest=bytes(range(16)))


def ask(*sent, quiet_bits=REST) -> list[Frame]:
    """Send frames, bytes or items; return the frames that come, and see that nothing else does."""
    items = [item for each in sent for item in (encode(each) if isinstance(each, Frame) else each)]
    answer = board().exchange(items, quiet_bits=quiet_bits)
    frames = list(FrameReader().feed(answer))
    assert b"".join(map(encode, frames)) == answer
    return frames


def operands(count, seed=0):
    """Return so many payloads of sums and differences, and the results that they must bring."""
    a, b, op = np.random.default_rng(seed).integers(0, [[256], [256], [2]], (3, count))
    x, y = (from_words(torch.from_numpy(each), lns8) for each in (a, b))
    return np.stack([a, b, op], 1).astype(np.uint8).tobytes(), (x, y, op)


def run(sequence, count, seed=0, command=Command.RUN) -> Frame:
    """Return the request of a run."""
    return Frame(command, sequence, bytes([2 * count]) + operands(count, seed)[0])


def golden(sequence, count, seed=0, command=Command.RUN, status=0) -> Frame:
    """Return the reply that it must bring."""
    from sim import golden, payloads
    from sim.stimulus import Vectors

    unit = hdl.AddSubtract(format=lns8)
    data = np.frombuffer(operands(count, seed)[0], np.uint8).reshape(count, 3).astype(np.int64)
    vectors = Vectors(data[:, 2], {"a": data[:, 0], "b": data[:, 1]})
    bits = payloads.pack(unit.o.payload.shape(), golden.evaluate(unit, vectors))
    return Frame(
        command | REPLY, sequence, b"".join(int(each).to_bytes(2, "little") for each in bits) + bytes([status])
    )


def error(kind, sequence=0) -> Frame:
    return Frame(REPLY, sequence, bytes([kind]))


def sound(sequence=200):
    """Whether the board answers as it should."""
    return ask(run(sequence, 5)) == [golden(sequence, 5)]


def test_it_says_what_it_is():
    (reply,) = ask(Frame(Command.IDENTIFY, 7, b""))
    assert (reply.command, reply.sequence) == (Command.IDENTIFY | REPLY, 7)
    assert Identity.from_bytes(reply.payload) == board().identity
    assert board().identity == Identity("add", "lns8", "exact", "log", False, 17, 12, 4_000_000, 2048, bytes(range(16)))


@pytest.mark.parametrize("count", [1, 2, 84])
def test_runs(count):
    assert ask(run(1, count)) == [golden(1, count)]


def test_a_repeated_run_gives_the_same_again():
    assert ask(run(9, 20), run(9, 20), run(9, 20)) == [golden(9, 20)] * 3


def test_many_frames_are_under_way_and_answered_in_order():
    assert ask(*(run(number, 84, number) for number in range(40))) == [golden(n, 84, n) for n in range(40)]


def test_the_line_is_the_limit():
    # Of 8 frames back to back the answers are there a frame later: nothing waits but for the line.
    sent = b"".join(encode(run(number, 84, number)) for number in range(8))
    begin = board().clocks
    answer = board().exchange(sent, quiet_bits=20)
    bytes_in_time = (board().clocks - begin) / (10 * board().divisor)
    assert len(answer) == 8 * len(encode(golden(0, 84)))
    assert bytes_in_time < len(sent) + len(encode(golden(0, 84))) + 20


def test_continued_runs_are_in_turn_or_refused():
    more = functools.partial(run, command=Command.CONTINUE)
    said = functools.partial(golden, command=Command.CONTINUE)
    assert ask(run(255, 2), more(0, 3), more(1, 4)) == [golden(255, 2), said(0, 3), said(1, 4)]
    # Again, one that was lost, and after a test.
    assert ask(more(1, 4)) == [error(ErrorKind.ORDER, 1)]
    assert ask(more(3, 4), more(2, 4)) == [error(ErrorKind.ORDER, 3), said(2, 4)]
    ask(Frame(Command.TEST, 4, b"\0" + bytes(4)), quiet_bits=CUT)
    assert ask(more(5, 4)) == [error(ErrorKind.ORDER, 5)]


def test_results_that_are_missing_or_too_many_are_told():
    payload = operands(3)[0]
    assert ask(Frame(Command.RUN, 1, bytes([8]) + payload)) == [
        golden(1, 3)._replace(payload=golden(1, 3).payload[:-1] + bytes([0, 0, Status.MISSING]))
    ]
    (reply,) = ask(Frame(Command.RUN, 1, bytes([4]) + payload))
    assert reply.payload == golden(1, 3).payload[:4] + bytes([Status.SURPLUS])
    (reply,) = ask(Frame(Command.RUN, 1, bytes([6]) + payload + b"\1"))
    assert reply.payload == golden(1, 3).payload[:6] + bytes([Status.INCOMPLETE])
    # A part of a result.
    assert ask(Frame(Command.RUN, 1, bytes([3]) + payload))[0].payload[:3] == golden(1, 3).payload[:3]
    assert sound()


@pytest.mark.parametrize("operation", [0, 1])
def test_the_test_of_itself(operation):
    seed = bytes([1, 2, 3, 4 | operation])[:3] + bytes([operation])
    (reply,) = ask(Frame(Command.TEST, 3, b"\2" + seed), quiet_bits=CUT)
    signature = expected_signature(hdl.AddSubtract(format=lns8), seed)
    assert reply == Frame(Command.TEST | REPLY, 3, signature + b"\0")
    assert sound()


# Errors ---------------------------------------------------------------------------------------------------------------


def damaged(frame, place, bits=1):
    data = bytearray(encode(frame))
    data[place] ^= bits
    return bytes(data)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ([b"\0"], [error(ErrorKind.GARBAGE)]),
        ([b"not a frame, but one error"], [error(ErrorKind.GARBAGE)]),
        ([b"\0", run(1, 2), b"\0"], [error(ErrorKind.GARBAGE), golden(1, 2), error(ErrorKind.GARBAGE)]),
        ([[NO_STOP]], [error(ErrorKind.GARBAGE)]),
        ([[*encode(run(1, 2))[:6], NO_STOP | 0x11]], [error(ErrorKind.GARBAGE)]),
        ([[START], [NO_STOP | 5]], [error(ErrorKind.GARBAGE)]),
        ([damaged(run(1, 2), 7)], [error(ErrorKind.CRC)]),
        ([damaged(run(1, 2), 2)], [error(ErrorKind.CRC)]),
        ([damaged(run(1, 2), 3)], [error(ErrorKind.CRC)]),
        ([damaged(run(1, 2), -1)], [error(ErrorKind.CRC)]),
        ([bytes([START, 0])], [error(ErrorKind.LENGTH)]),
        ([bytes([START, 1])], [error(ErrorKind.LENGTH)]),
        ([Frame(Command.IDENTIFY, 9, b"\0")], [error(ErrorKind.LENGTH, 9)]),
        ([Frame(Command.RUN, 9, b"")], [error(ErrorKind.LENGTH, 9)]),
        ([Frame(Command.TEST, 9, b"")], [error(ErrorKind.LENGTH, 9)]),
        ([Frame(Command.RUN, 9, b"\xfd" + bytes(250))], [error(ErrorKind.LENGTH, 9)]),
        ([Frame(0, 9, b"x")], [error(ErrorKind.COMMAND, 9)]),
        ([Frame(5, 9, b"xyz")], [error(ErrorKind.COMMAND, 9)]),
        ([Frame(Command.RUN | REPLY, 9, bytes(253))], [error(ErrorKind.COMMAND, 9)]),
    ],
)
def test_errors_are_told(sent, answer):
    assert ask(*sent) == answer
    assert sound()


@pytest.mark.parametrize("length", [1, 2, 4, 5, 9, 12])
def test_a_frame_that_was_cut(length):
    assert ask(encode(run(1, 2))[:length], quiet_bits=CUT) == [error(ErrorKind.CUT)]
    assert sound()


def test_a_frame_may_pause():
    data = encode(run(1, 2))
    assert ask([data[0], data[1] + SILENCE * 30_000, *data[2:8], data[8] + SILENCE * 30_000, *data[9:]]) == [
        golden(1, 2)
    ]


def test_zeros_end_whatever_is_under_way():
    for length in range(1, 12):
        assert ask(encode(run(1, 2))[:length], FLUSH, run(2, 3))[-1] == golden(2, 3)


def test_frames_that_find_no_room_are_dropped():
    tests = [Frame(Command.TEST, number, b"\2" + bytes([1, 2, 3, 0])) for number in (100, 101)]
    answer = ask(*tests, *(run(number, 84, number) for number in range(1, 12)), quiet_bits=CUT)
    assert [frame.sequence for frame in answer[:2]] == [100, 101]
    # A frame takes 256 bytes there, and there is room for 2047 bytes; of the four that are dropped one error is told.
    assert answer[2:] == [error(ErrorKind.OVERRUN), *(golden(number, 84, number) for number in range(1, 8))]
    assert sound()


# Noise ----------------------------------------------------------------------------------------------------------------


def recovers():
    """Whether the board, which may be in the middle of anything, answers as it should after that."""
    answer = board().exchange(FLUSH + encode(run(77, 5)), quiet_bits=CUT)
    return answer.endswith(encode(golden(77, 5)))


def test_noise_never_hangs_it():
    rng = np.random.default_rng(7)
    for _ in range(60):
        # Half of it as if it were frames, so that all lengths and commands occur.
        noise = rng.integers(0, 256, 2000)
        noise[rng.random(2000) < rng.choice([0, 0.02, 0.3])] = START
        noise[rng.random(2000) < 0.001] |= NO_STOP
        noise[rng.random(2000) < 0.001] += SILENCE * 45_000
        board().exchange(noise, quiet_bits=int(rng.choice([20, REST])))
        assert recovers()


def test_damaged_frames_never_hang_it():
    rng = np.random.default_rng(8)
    sent = 0
    while sent < 100_000:
        data = bytearray()
        for number in range(rng.integers(1, 60)):
            command = rng.choice([*Command, Command.RUN, Command.CONTINUE, int(rng.integers(0, 256))])
            size = int(rng.choice([0, 1, 4, 40, 253]))
            frame = bytearray(encode(Frame(int(command), number, rng.bytes(size))))
            kind, place = rng.integers(0, 6), int(rng.integers(0, len(frame)))
            if kind == 0:
                frame[place] ^= 1 << int(rng.integers(0, 8))
            elif kind == 1:
                del frame[place:]
            elif kind == 2:
                del frame[place]
            elif kind == 3:
                frame.insert(place, int(rng.integers(0, 256)))
            data += frame
        sent += len(data)
        board().exchange(bytes(data), quiet_bits=int(rng.choice([20, REST])))
        assert recovers()


# Parameters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"unit": "add"}, TypeError, "unit must be a Unit such as Multiply(format=lns16), not 'add'"),
        ({"digest": b"short"}, ValueError, "digest must be 16 bytes, not b'short'"),
        ({"buffer": 1000}, ValueError, "buffer must be a power of two from 512 to 32768, not 1000"),
        (
            {"baud": 3_500_000},
            ValueError,
            "baud must be at most a fourth of the clock and divide it within 2 %, not 3,500,000 of 12,000,000 Hz",
        ),
        (
            {"unit": hdl.DotProduct(format=lns8, lanes=128)},
            ValueError,
            "payloads of dot must have at most 252 bytes, not 258",
        ),
    ],
)
def test_what_cannot_be(parameters, error, message):
    given = {"unit": hdl.Multiply(format=lns8), "digest": bytes(16), "clock_hz": 12e6, **parameters}
    with pytest.raises(error, match=exactly(message)):
        Bridge(given.pop("unit"), **given)
