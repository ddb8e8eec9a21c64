"""Reading captures, and writing them for viewers; imported as ``neuron_tb.converters``."""
