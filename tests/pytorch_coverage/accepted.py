"""Where LNS and float64 differ, or cannot be compared as closely, and why a reader should accept it."""

#: Entry: factor on the tolerance, least size that the results are taken to have, reason.
LOOSER = {
    "special.bessel_j0": (1e4, 1.0, "PyTorch's float64 is up to 9e-7 off; a test holds ours against mpmath"),
    "special.bessel_j1": (1e4, 1.0, "PyTorch's float64 is up to 9e-7 off; a test holds ours against mpmath"),
    "special.bessel_y0": (1e4, 1.0, "PyTorch's float64 is up to 9e-7 off; a test holds ours against mpmath"),
    "special.bessel_y1": (1e4, 1.0, "PyTorch's float64 is up to 9e-7 off; a test holds ours against mpmath"),
    "special.airy_ai": (1e4, 1.0, "PyTorch's float64 is up to 3e-6 off; a test holds ours against mpmath"),
    "special.ndtr": (1.0, 1.0, "PyTorch computes (1 + erf) / 2, which cancels for negative numbers"),
    "nn.functional.hardsigmoid": (1e2, 1.0, "PyTorch's float64 backward multiplies by 1/6 rounded to float32"),
    "nn.Hardsigmoid": (1e2, 1.0, "PyTorch's float64 backward multiplies by 1/6 rounded to float32"),
    "logcumsumexp": (64.0, 0.0, "its backward is a difference of exponentials of sums, which cancels"),
    "nn.functional.ctc_loss": (64.0, 0.0, "exponentials of long sums of logarithms magnify each rounding"),
    "nn.CTCLoss": (64.0, 0.0, "exponentials of long sums of logarithms magnify each rounding"),
    "nn.functional.normalize": (64.0, 0.0, "its backward cancels where one number makes the norm"),
}

#: Entry: how it differs, and why that is right. These are neither passes nor refusals.
DIFFERENT = {
    "empty_like": "memory that is not set: zero in LNS, whatever was there in float64",
    "new_empty": "memory that is not set: zero in LNS, whatever was there in float64",
    "new_empty_strided": "memory that is not set: zero in LNS, whatever was there in float64",
    "masked.argmax": "the entry turns the index into float64; an index is no LNS number",
    "masked.argmin": "the entry turns the index into float64; an index is no LNS number",
}

#: Families that are out of scope; an entry of one is refused with a NotImplementedError that names the operator.
FAMILIES = {
    "fft": ("fft.", "stft"),
    "complex numbers": ("complex", "polar", "view_as_complex", "cfloat", "cdouble", "chalf"),
    "sparse tensors": ("sparse.", "to_sparse", "SparseAdam"),
    "matrix decompositions": (
        "linalg.", "cholesky", "lu", "qr", "svd", "pca_lowrank", "pinverse", "geqrf", "ormqr", "logdet", "norm.nuc",
        "matrix_exp", "triangular_solve",
    ),
    "orthogonal polynomials": ("special.chebyshev", "special.shifted", "special.hermite", "special.laguerre",
                               "special.legendre"),
    "other dtypes": ("float", "half", "bfloat16"),
}  # fmt: skip

#: Entry of module_db or optim_db that does not pass, and the reason.
REASONS = {
    "nn.LinearCrossEntropyLoss": "its chunked kernel writes gradients into plain buffers; without options= it passes",
    "SparseAdam": "it takes sparse gradients only, and there are no sparse LNS tensors",
}


def tolerance(name: str) -> tuple[float, float]:
    """Return the factor on an entry's tolerance, and the least size that its results are taken to have."""
    slack, floor, _ = LOOSER.get(name, (1.0, 0.0, ""))
    return slack, floor


def family(name: str) -> str:
    """Return the out-of-scope family that an entry belongs to, or nothing."""
    return next((f for f, starts in FAMILIES.items() if name.startswith(starts)), "")
