"""Compiled kernels: the arithmetic of :mod:`xlnstorch.arithmetic` on CPU tensors, to the same bits, in C++.

Each function returns None or False where there is no kernel for what it is given, and the caller computes with torch:
without the compiled module, on another device, for a format with specials, or for an adder that no kernel knows.

The environment variable ``LNS_KERNELS`` chooses the instruction set: ``avx512``, ``avx2`` or ``plain``, the best that
the machine has by default, or ``off``. Threads are torch's: ``torch.set_num_threads`` and ``OMP_NUM_THREADS``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ._module import choices, compiled, current, use
from .functions import accumulate, decode, elementwise, encode, from_order, order, product, total

__all__ = [
    "accumulate",
    "choices",
    "compiled",
    "current",
    "decode",
    "elementwise",
    "encode",
    "from_order",
    "order",
    "product",
    "total",
    "use",
    "using",
]


@contextlib.contextmanager
def using(choice: str) -> Iterator[None]:
    """Compute with `choice` inside the block, in all threads: one of :func:`choices`."""
    before = current()
    use(choice)
    try:
        yield
    finally:
        use(before)


if "LNS_KERNELS" in os.environ:
    use(os.environ["LNS_KERNELS"])
