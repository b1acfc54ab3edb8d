"""PyTorch's own test databases run on LNSTensors: what of torch works in LNS, and nothing that gives a wrong number.

``python -m pytorch_coverage`` (in ``tests/``) measures everything, writes ``expected.json`` beside this file and
``docs/coverage.md``; the tests fail where a measurement differs from ``expected.json`` in either direction.
"""
