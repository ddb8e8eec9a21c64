"""Which files are there, and which belong together.

Comes in: paths or URLs. Goes out: ``capture.Found``, the files of every process and session.
Promise: names and first bytes decide, no file is read whole, and what was left out is listed.
"""
