"""JSON that TensorBoard's PyTorch Profiler plugin loads.

Comes in: a Trace. Goes out: a file per rank. Promise: the plugin's sums are the capture's; what
it would drop or crash on is taken care of, with a finding.
"""
