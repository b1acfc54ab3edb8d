"""Against the words of an unrelated public implementation, xlnsresearch/xlnscpp.

Theirs flushes a product or quotient to a signed zero, and rounds the logarithm of a difference towards zero from a
negative half; everything else is equal, bit for bit. The rows below always run; the large files beside the repository
run where they are present.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from xlnstorch import arithmetic, conversions, lns16, lns32
from xlnstorch.reference import Reference

pytestmark = pytest.mark.usefixtures("kernel")

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "oracles"
FORMATS = {"xlns16": lns16, "xlns32": lns32}

# a, b, and their a * b, a / b, a + b.
ROWS = {
    "xlns16": [
        (0xDFF5, 0x6120, 0xFFFF, 0xBED5, 0x60F7),
        (0x9CAF, 0x1A6D, 0x8000, 0xC242, 0x9CA7),
        (0x931B, 0x937C, 0x0000, 0x3F9F, 0x93D2),
        (0x8673, 0x0566, 0x8000, 0xC10D, 0x8642),
        (0x09E6, 0xD9A9, 0xA38F, 0x8000, 0xD9A9),
        (0xA1B8, 0xA24A, 0x0402, 0x3F6E, 0xA28F),
        (0x9778, 0x19C4, 0x8000, 0xBDB4, 0x19BC),
        (0x65E8, 0x18CD, 0x3EB5, 0x7FFF, 0x65E8),
        (0x92CC, 0x138C, 0x8000, 0xBF40, 0x133B),
        (0x20C1, 0xA36E, 0x842F, 0xBD53, 0xA369),
        (0x72FC, 0x8C0A, 0xBF06, 0xFFFF, 0x72FC),
        (0x4C87, 0x4FF4, 0x5C7B, 0x3C93, 0x4FF6),
        (0x0583, 0x0434, 0x0000, 0x414F, 0x059F),
        (0x8489, 0x8787, 0x0000, 0x3D02, 0x878A),
        (0x8BE6, 0x8BFA, 0x0000, 0x3FEC, 0x8C70),
        (0x93D1, 0x91A5, 0x0000, 0x422C, 0x93DA),
        (0x09AA, 0x06E3, 0x0000, 0x42C7, 0x09AE),
        (0x78F5, 0xF917, 0xFFFF, 0xBFDE, 0xF7CF),
        (0xE889, 0x6882, 0xFFFF, 0xC007, 0xE62A),
        (0x73E1, 0xF45C, 0xFFFF, 0xBF85, 0xF3D8),
        (0x5808, 0xD793, 0xEF9B, 0xC075, 0x577D),
        (0xB153, 0x30EB, 0xA23E, 0xC068, 0xB0B8),
        (0x2AE3, 0xAB29, 0x960C, 0xBFBA, 0xAA55),
        (0x4C78, 0xCC78, 0xD8F0, 0xC000, 0x0000),
        (0x3A54, 0x3A54, 0x34A8, 0x4000, 0x3AD4),
    ],
    "xlns32": [
        (0xAE40A0E8, 0x2D890FF5, 0x9BC9B0DD, 0xC0B790F3, 0xADEB48EB),
        (0x6534B202, 0x1C40FD2B, 0x4175AF2D, 0x7FFFFFFF, 0x6534B202),
        (0x01FEE38B, 0x00D17202, 0x00000000, 0x412D7189, 0x021FDB9C),
        (0xCDA510C1, 0x01184840, 0x8EBD5901, 0xFFFFFFFF, 0xCDA510C1),
        (0x80016875, 0x7FCC91DB, 0xBFCDFA50, 0x80000000, 0x7FCC91DB),
        (0x84DC72A2, 0x0AEBC2E9, 0x80000000, 0xB9F0AFB9, 0x0AEBB849),
        (0x14058FF3, 0x14244392, 0x00000000, 0x3FE14C61, 0x14958CE9),
        (0x007FCE01, 0x01758C26, 0x00000000, 0x3F0A41DB, 0x01A0DA0F),
        (0xC48C01DD, 0x43C1206E, 0xC84D224B, 0xC0CAE16F, 0xC4412281),
        (0xA76FB15A, 0x26CF9F78, 0x8E3F50D2, 0xC0A011E2, 0xA70B0237),
        (0xF03E4DBD, 0x6F8DECCE, 0xFFFFFFFF, 0xC0B060EF, 0xEFE49A64),
        (0x5FA2A25B, 0xE0024BAC, 0xFFA4EE07, 0xBFA056AF, 0xDF5B10D3),
        (0x525698DF, 0x530C0ADD, 0x6562A3BC, 0x3F4A8E02, 0x5346C328),
        (0xCCC9FA4C, 0x4D736FF1, 0xDA3D6A3D, 0xBF568A5B, 0x4D154624),
        (0x7A804C83, 0x7B5785E7, 0x7FFFFFFF, 0x3F28C69C, 0x7B89A31D),
        (0x98329E60, 0x9881C4ED, 0x00000000, 0x3FB0D973, 0x98DE670D),
        (0xF967D82F, 0xF9BCEE8A, 0x7FFFFFFF, 0x3FAAE9A5, 0xFA173EFD),
        (0x791DD100, 0x79FB9AD5, 0x7FFFFFFF, 0x3F22362B, 0x7A2C2E07),
        (0xDCC21604, 0x5CC29F32, 0xF984B536, 0xBFFF76D2, 0x588B764A),
        (0x147DA32B, 0x1407A069, 0x00000000, 0x407602C2, 0x14CBE718),
        (0xE4CF27BC, 0x64A50A63, 0xFFFFFFFF, 0xC02A1D59, 0xE3A9892C),
        (0x048BB482, 0x8469D3AE, 0x80000000, 0xC021E0D4, 0x0341E022),
        (0xB54B02BE, 0x353D0494, 0xAA880752, 0xC00DFE2A, 0xB3679F8A),
        (0x16524369, 0x968738B3, 0x80000000, 0xBFCB0AB6, 0x9586B87E),
    ],
}

# Words and the value that they show, as a float32.
DECODED = {
    "xlns16": {
        0x0000: 0.0,
        0x0001: 2.9546924626689855e-39,
        0x007F: 5.845729541297552e-39,
        0x0080: 5.877471754111438e-39,
        0x3FFF: 0.9945994019508362,
        0x4000: 1.0,
        0x4001: 1.0054298639297485,
        0x7FFF: 3.384446386339804e38,
        0x8000: 0.0,
        0xFFFF: -3.384446386339804e38,
    },
    "xlns32": {
        0x01FEE38B: 4.673769825721677e-38,
        0x2FA350B5: 1.4094979350343095e-10,
        0x58F7C92E: 1076915871940608.0,
        0x6534B202: 2.5127449063145542e22,
        0xAE40A0E8: -2.0649681617412874e-11,
        0xDB283A46: -2.2398915873603584e16,
        0xE6804521: -1.5133687220793105e23,
        0xF301E631: -5.123020215525588e30,
    },
}


def check(name, columns):
    """Check every statement that holds of the oracle; return how many differences were one unit off."""
    format, reference = FORMATS[name], Reference(FORMATS[name].int_bits, FORMATS[name].frac_bits)
    a, b, mul, div, add = (torch.from_numpy(np.asarray(column, dtype=np.int64)) for column in columns)
    words_a, words_b = format.from_unsigned(a), format.from_unsigned(b)
    negative_zero = 1 << format.log_bits

    def ours(call):
        return format.to_unsigned(call(format, words_a, words_b))

    for call, theirs in ((arithmetic.mul, mul), (arithmetic.div, div)):
        assert torch.equal(ours(call), torch.where(theirs == negative_zero, 0, theirs))

    sums = ours(arithmetic.add)
    different_signs = (a ^ b) >> format.log_bits != 0
    off = sums - torch.where(add == negative_zero, 0, add)
    assert not off[~different_signs].any()
    assert off.abs().max() <= 1
    for index in off.nonzero().flatten().tolist()[:200]:
        # The reference takes the nearest, so theirs is not.
        assert reference.add(int(a[index]), int(b[index]))[0] == int(sums[index]) != int(add[index])
    return int(off.count_nonzero())


def check_decode(name, words, values):
    """Check decoded values, which theirs rounds to float32."""
    format = FORMATS[name]
    decoded = conversions.decode(format, format.from_unsigned(torch.from_numpy(np.asarray(words, dtype=np.int64))))
    assert np.array_equal(decoded.to(torch.float32).numpy(), np.asarray(values, dtype=np.float32))


@pytest.mark.parametrize("name", FORMATS)
def test_rows(name):
    assert check(name, zip(*ROWS[name], strict=True)) > 0


@pytest.mark.parametrize("name", FORMATS)
def test_reference_on_rows(name):
    reference = Reference(FORMATS[name].int_bits, FORMATS[name].frac_bits)
    for a, b, mul, div, add in ROWS[name]:
        assert reference.mul(a, b)[0] == (0 if mul == 1 << reference.log_bits else mul)
        assert reference.div(a, b)[0] == (0 if div == 1 << reference.log_bits else div)
        assert abs(reference.add(a, b)[0] - add) <= (a ^ b) >> reference.log_bits


@pytest.mark.parametrize("name", FORMATS)
def test_decoded_values(name):
    check_decode(name, list(DECODED[name]), list(DECODED[name].values()))


def load(name):
    path = FOLDER / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"the oracle {name}.npz does not lie in ../shared/oracles")
    return np.load(path)


@pytest.mark.parametrize("name", FORMATS)
def test_oracle_arithmetic(name):
    data = load(name)
    off = check(name, [data[key] for key in ("a", "b", "mul", "div", "add")])
    assert 0 < off < 0.05 * len(data["a"])


def test_oracle_values_of_xlns16():
    data = load("xlns16")
    check_decode("xlns16", np.arange(1 << 16), data["decode"])


def test_oracle_values_of_xlns32():
    data = load("xlns32")
    check_decode("xlns32", data["a"], data["decode_a"])
