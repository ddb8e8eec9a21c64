"""A simulated Neuron device for PyTorch; README.md beside this file describes it."""
