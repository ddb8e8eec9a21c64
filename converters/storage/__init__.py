"""Where bytes lie: files and folders that are replaced as a whole, and places that are URLs.

Comes in: what is to be written. Goes out: the old file or the new one, never a half. Promise:
leftovers of processes that died are taken away, those of others are not touched.
"""
