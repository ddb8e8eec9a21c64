"""Perfetto's protobuf trace.

Comes in: a Trace. Goes out: one file. Promise: every slice with its own length, overlapping ones
on lanes of their own, and all arguments.
"""
