"""A training script as a GPU user writes it, for ``neuron-tb demo --live``."""
