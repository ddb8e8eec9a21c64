"""Chrome JSON as Kineto writes it, for HTA, TraceLens and Chakra.

Comes in: a Trace. Goes out: a file per rank. Promise: read again, it gives the same times.
"""
