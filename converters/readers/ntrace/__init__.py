"""The raw files of the Neuron runtime (``ntrace.pb``), whose format is not published.

Comes in: protobuf without a schema. Goes out: the Trace that the system profile would give.
Promise: what a field means is settled by evidence in the file, else the file is refused.
"""
