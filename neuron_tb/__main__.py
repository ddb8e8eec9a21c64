"""``python -m neuron_tb`` is the ``neuron-tb`` command."""

from neuron_tb.commands import main

if __name__ == "__main__":
    main()
