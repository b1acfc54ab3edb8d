"""Boards: so far synthesis, place and route for them (:mod:`fpga.flow`), and what each adder takes there.

:mod:`fpga.levels` hands netlists, and an iCE40's bitstream read back, to the bench of :mod:`sim`.
"""
