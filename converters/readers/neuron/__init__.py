"""Neuron's system profile in every form: JSON, Parquet tables, dump of the runtime's events.

Comes in: what Neuron Explorer or the runtime's own library wrote. Goes out: a Trace of runtime
calls and NeuronCore executions. Promise: unknown names, columns and units are findings.
"""
