"""What simulates, for samples, demo, tests and benchmarks alike; nothing here measures anything.

Comes in: a script of operators and their lengths, or a PyTorch program. Goes out: captures as
TorchNeuron leaves them (``process``, ``files``), or a Neuron device that PyTorch runs on
(``device``). Promise: whatever is made says that it is synthetic.
"""
