"""Bytes to JSON values: mapping, gzip, chunks, bounds.

Comes in: a file. Goes out: a ``document.Document``, or events chunk by chunk as columns.
Promise: bounded memory whatever the file says, and damage is repaired or counted, never guessed.
"""
