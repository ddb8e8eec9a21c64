"""How fast neuron_tb is, and what it needs, beside the programs that read the same files.

python -m benchmarks             the full table, medians of five runs (``make bench``)
python -m benchmarks --quick     200,000 events, under a minute (``make bench-quick``)
"""
