"""One unit after the other, many at once, many machines; and RUN.json, the list of a run's files.

Comes in: units of a capture, or results of ranks. Goes out: one run. Promise: while RUN.json is
missing the run is not complete, a rank that fails leaves the others, and memory holds one rank.
"""
