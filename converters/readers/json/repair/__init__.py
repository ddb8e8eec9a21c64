"""What of a damaged JSON file can be read.

Comes in: bytes that are no valid JSON. Goes out: the events that are whole or can be mended.
Promise: nothing is invented, and every byte that was not understood is counted.
"""
