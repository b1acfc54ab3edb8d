"""Boards: so far synthesis, place and route for them (:mod:`fpga.flow`), and what each adder takes there.

Bitstreams are not here yet.
"""
