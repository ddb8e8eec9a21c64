"""Synthetic captures; imported as ``neuron_tb.samples``."""
