"""``python -m neuron_tb`` is the ``neuron-tb`` command."""

from __future__ import annotations

import sys

_WITHOUT_PANDAS = (["convert"], ["merge"], ["summary"], ["compare"], ["info"])
"""Commands in whose process nothing needs pandas. Arrow imports it, where it is installed, to see
whether its first array is one of pandas'; that takes longer than a small conversion."""


class _NoPandas:
    """Finds no pandas, whether it is installed or not."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"{name} is not used here", name=name)


def main() -> None:
    """Run the command; nothing is imported that it does not need."""
    if sys.argv[1:] in (["--help"], ["-h"]):
        from neuron_tb.overview import help_text

        sys.stdout.write(help_text())
        return
    if sys.argv[1:2] in _WITHOUT_PANDAS:
        sys.meta_path.insert(0, _NoPandas())
    from neuron_tb.commands import main as command

    command()


if __name__ == "__main__":
    main()
