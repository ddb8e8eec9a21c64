"""A training capture of two ranks, made up."""
