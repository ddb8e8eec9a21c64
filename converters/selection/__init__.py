"""A part of a capture: ranks, cores, steps, a range of time, kinds of events.

Comes in: a linked Trace and ``filters.Filters``. Goes out: a Trace of fewer rows. Promise:
what is left keeps the operator and step it had among all, and no slice is cut in two.
"""
