"""``python -m neuron_tb`` is the ``neuron-tb`` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; nothing is imported that it does not need."""
    if sys.argv[1:] in (["--help"], ["-h"]):
        from neuron_tb.overview import help_text

        sys.stdout.write(help_text())
        return
    from neuron_tb.commands import main as command

    command()


if __name__ == "__main__":
    main()
