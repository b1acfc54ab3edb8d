"""What several test files of the gates use: what a unit must answer, by the reference and by its golden functions."""

import numpy as np
from amaranth.hdl import Shape

from sim import payloads
from sim.golden import evaluate
from sim.stimulus import Vectors
from xlnstorch.observe import FLAGS
from xlnstorch.reference import Reference


def relu_grad(reference, a, b, *_):
    """Return the gradient b where relu has a slope at a: where a is positive, and, as in PyTorch, where it is NaN."""
    return (reference.maximum(b, b)[0] if reference.compare(a, 0) in (1, None) else 0), ()


def compare(reference, a, b, *_):
    order = reference.compare(a, b)
    return {"less": order == -1, "equal": order == 0, "greater": order == 1, "unordered": order is None}


def mac(reference, a, b, c):
    product, flags = reference.mul(a, b)
    total, more = reference.add(c, product)
    return total, flags | more


#: For each operation, word and flags by the reference from all operands of a unit that has it, or a dict of results.
REFERENCE = {
    "mul": lambda reference, a, b, *_: reference.mul(a, b),
    "div": lambda reference, a, b, *_: reference.div(a, b),
    "square": lambda reference, a, *_: reference.pow(a, 2),
    "sqrt": lambda reference, a, *_: reference.sqrt(a),
    "add": lambda reference, a, b, *_: reference.add(a, b),
    "sub": lambda reference, a, b, *_: reference.sub(a, b),
    "mac": mac,
    "neg": lambda reference, a, *_: reference.neg(a),
    "abs": lambda reference, a, *_: reference.abs(a),
    "copysign": lambda reference, a, b, *_: reference.copysign(a, b),
    "compare": compare,
    "max": lambda reference, a, b, *_: reference.maximum(a, b),
    "min": lambda reference, a, b, *_: reference.minimum(a, b),
    "relu": lambda reference, a, *_: reference.relu(a),
    "relu_grad": relu_grad,
}


def reference_of(format):
    return Reference(format.int_bits, format.frac_bits, format.specials)


def flag_bits(flags):
    return sum(1 << FLAGS.index(flag) for flag in flags)


def packed(unit, cases):
    """Return payloads of cases, each an operation's name and a tuple of operands, which are integers."""
    layout, names, operations = unit.i.payload.shape(), list(unit.operands()), list(unit.operations)
    opcode = layout["op"].offset if len(operations) > 1 else 0
    return [
        sum(operand << layout[name].offset for name, operand in zip(names, operands, strict=True))
        | operations.index(operation) << opcode
        for operation, operands in cases
    ]


def answers(unit, cases):
    """Return the payloads that a unit must give, by the reference: its results, the lowest first, then the flags."""
    reference, layout = reference_of(unit.format), unit.o.payload.shape()
    expected = []
    for operation, operands in cases:
        words = (operand & ((1 << unit.format.width) - 1) for operand in operands)
        results, flags = REFERENCE[operation](reference, *words), ()
        if isinstance(results, dict):
            bits = sum(result << place for place, result in enumerate(results.values()))
        else:
            bits, flags = results
        expected.append(bits | (flag_bits(flags) << layout["flags"].offset if flags else 0))
    return expected


def golden_answers(unit, cases):
    """Return the payloads that a unit must give, by its golden functions."""
    op = np.array([list(unit.operations).index(operation) for operation, _ in cases])
    columns = np.array([operands for _, operands in cases], dtype=np.int64).T
    vectors = Vectors(op, dict(zip(unit.operands(), columns, strict=True)))
    return payloads.pack(unit.o.payload.shape(), evaluate(unit, vectors))


def random_word(format, rng):
    """Return a word, one of ten of them at an end of the range, or one, or what is not an ordinary number."""
    ends = [0, 1, format.max_field - 1, format.max_field, format.bias]
    return (
        rng.choice(ends) | rng.getrandbits(1) << format.log_bits
        if rng.random() < 0.1
        else rng.getrandbits(format.width)
    )


def random_cases(unit, rng, count):
    """Return cases of all operations in random order, of words of which some are near each other.

    What an operand has above a word is random.
    """
    format, operations, arity = unit.format, list(unit.operations), len(unit.operands())
    above = Shape.cast(next(iter(unit.operands().values()))).width - format.width
    cases = []
    for _ in range(count):
        words = [random_word(format, rng) for _ in range(arity)]
        if arity > 1 and rng.random() < 0.5:
            near = (words[0] & format.max_field) + rng.randint(-9, 9)
            words[1] = max(0, min(near, format.max_field)) | rng.getrandbits(1) << format.log_bits
        words[0] |= rng.getrandbits(above) << format.width
        cases.append((rng.choice(operations), tuple(words)))
    return cases


def check(unit, cases, run_unit, *, reference=True, **stalls):
    """Assert that the gates give what the golden functions do and, unless there is none, the reference, in order."""
    _, received = run_unit(unit, packed(unit, cases), **stalls)
    golden = golden_answers(unit, cases)
    assert len(received) == len(cases)
    for case, (_, payload), wanted in zip(cases, received, golden, strict=True):
        assert payload == wanted, (case, hex(payload), hex(wanted))
    if reference:
        known = [(case, payload) for case, payload in zip(cases, golden, strict=True) if case[0] in REFERENCE]
        for (case, payload), wanted in zip(known, answers(unit, [case for case, _ in known]), strict=True):
            assert payload == wanted, (case, hex(payload), hex(wanted))


def check_rate(unit, cases, run_unit):
    """Assert that each result comes `latency` clocks after its operands, one a clock."""
    sent, received = run_unit(unit, packed(unit, cases))
    clocks = [clock for clock, _ in received]
    assert [after - before for before, after in zip(sent, clocks, strict=True)] == [unit.latency] * len(cases)
    assert clocks == list(range(clocks[0], clocks[0] + len(cases)))


def check_reset(unit, cases, rng, run_unit):
    """Assert that a reset under stalls loses what is in flight, all of it and nothing else."""
    payloads, at = packed(unit, cases), len(cases)
    full = range(at - unit.latency, at + 1)  # until the reset nothing is taken out, so that the pipeline fills
    stalls = [(rng.random() < 0.7, rng.random() < 0.6) for _ in range(40 * len(cases))]
    sent, received = run_unit(
        unit,
        payloads,
        valid=lambda clock: clock in full or stalls[clock][0],
        ready=lambda clock: clock not in full and stalls[clock][1],
        reset=lambda clock: clock == at,
    )
    expected = golden_answers(unit, cases)
    taken, out = sum(clock < at for clock in sent), sum(clock < at for clock, _ in received)
    assert 0 < out < taken < len(cases)
    assert [payload for _, payload in received] == expected[:out] + expected[taken:]
