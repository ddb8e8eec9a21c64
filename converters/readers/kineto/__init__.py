"""Kineto's trace.json, and the Chrome traces of other programs.

Comes in: a JSON document with ``traceEvents``. Goes out: a Trace of a process or several.
Promise: microseconds become exact nanoseconds, and events that cannot be placed are counted.
"""
