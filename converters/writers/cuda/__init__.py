"""CUDA's words for Neuron's work, for tools that know no others.

Comes in: a Trace. Goes out: events as Kineto writes them of a GPU, for ``kineto`` and
``torch_tb``. Promise: times stay as they are, and the translation says that it is one.
"""
