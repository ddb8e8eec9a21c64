"""Device profiles: engines, DMA queues and counters inside one execution.

Comes in: Neuron Explorer's tables (Parquet) or JSON. Goes out: a Trace on a clock of its own,
and the profile's facts. Promise: a column that is not known is named, and no unit is assumed.
"""
