"""Showing what was written: servers on this machine alone, for TensorBoard and for Perfetto.

>>> from neuron_tb.viewing.perfetto_server import serve_trace
>>> with serve_trace(Path("logs/perfetto/run.pftrace")) as server:
...     print(server.url)
...     server.serve_until_closed()
"""
