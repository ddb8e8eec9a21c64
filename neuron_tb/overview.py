"""What ``neuron-tb --help`` prints, without click, whose import takes longer than all the rest."""

from __future__ import annotations

COMMANDS = {
    "convert": "Write a capture for TensorBoard, Perfetto and tools that know CUDA's words.",
    "merge": "Join what was converted rank by rank to one run.",
    "summary": "Print where the time goes: by operator, kernel or step.",
    "compare": "Put captures side by side: did the change help?",
    "roofline": "Say what bounds a program: compute or memory, and how much it used.",
    "info": "Say what a capture holds and what it lacks.",
    "check": "Open what was written with the viewers' own code.",
    "run": "Run a script so that its GPU profiling records Neuron.",
    "view": "Convert if needed and open in TensorBoard or Perfetto.",
    "demo": "Show AWS's RMSNorm example: table, comparison, TensorBoard, Perfetto.",
}
"""The sub-commands, in the order in which they are listed."""

_HEAD = """\
Usage: neuron-tb [OPTIONS] COMMAND [ARGS]...

  AWS Trainium profiles in TensorBoard and Perfetto.

  Start with `neuron-tb demo`, or with `neuron-tb summary CAPTURE`.

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

Commands:
"""
_WIDTH = 78


def help_text() -> str:
    """The same text as click makes for a terminal of 80 columns."""
    column = max(map(len, COMMANDS)) + 4
    lines = []
    for name, what in COMMANDS.items():
        line = f"  {name}".ljust(column)
        for word in what.split():
            if len(line) + len(word) > _WIDTH:
                lines.append(line.rstrip())
                line = " " * column
            line += f"{word} "
        lines.append(line.rstrip())
    return _HEAD + "\n".join(lines) + "\n"
