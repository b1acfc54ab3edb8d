"""Bitstreams for boards. Nothing is here yet: the units in :mod:`hdl` come first."""
