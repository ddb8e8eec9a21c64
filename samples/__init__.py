"""Synthetic captures, and the scripts that write them."""
