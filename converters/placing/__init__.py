"""One time line: which process a system profile is of, and when a device profile happened.

Comes in: Traces as they were read. Goes out: one Trace on one clock. Promise: times are moved by
a stated method with a stated bound, or not at all, and each method stands in the findings.
"""
