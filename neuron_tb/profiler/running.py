"""Running a user's program as Python itself would: its names, its errors, its exit status."""

from __future__ import annotations

import builtins
import os
import runpy
import signal
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run_script(script: Path, arguments: tuple[str, ...]) -> None:
    """What ``python SCRIPT ARGUMENTS`` does. Raises SystemExit where that ends with a status."""
    sys.argv = [str(script), *arguments]
    if script.suffix == ".zip" or script.is_dir():
        _look_first_in(str(script))
        _as_python(lambda: runpy.run_path(str(script), run_name="__main__"), skip=("runpy",))
        return
    _look_first_in(str(script.resolve().parent))
    source = script.read_bytes()
    main = _new_main()
    file = main.__file__ = str(script.absolute())
    main.__dict__["__cached__"] = None

    def run() -> None:
        exec(compile(source, file, "exec", dont_inherit=True), main.__dict__)

    _as_python(run)


def run_module(module: str, arguments: tuple[str, ...]) -> None:
    """What ``python -m MODULE ARGUMENTS`` does. Raises SystemExit as ``run_script``."""
    sys.argv = [module, *arguments]
    _look_first_in(str(Path.cwd()))
    _new_main()
    # The function behind ``python -m``: its frames are in the traceback there too.
    run: Callable[[str], Any] = runpy._run_module_as_main  # type: ignore[attr-defined]
    _as_python(lambda: run(module))


def _look_first_in(directory: str) -> None:
    """Modules are looked for beside the program, not beside this one."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = directory


def _new_main() -> types.ModuleType:
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = main
    return main


def _as_python(run: Callable[[], Any], skip: tuple[str, ...] = ()) -> None:
    """Call ``run``; an error is told without this file's frames, and its status is Python's."""
    try:
        run()
    except SystemExit:
        raise
    except BaseException as error:
        error.__traceback__ = _below(error.__traceback__, skip)
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt) and os.name == "posix":
            # As Python does, so that a shell's loop ends too.
            sys.stdout.flush()
            sys.stderr.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        raise SystemExit(1) from None


def _below(frames: types.TracebackType | None, skip: tuple[str, ...]) -> Any:
    own = (__file__, *(f"<frozen {name}>" for name in skip))
    while frames is not None and frames.tb_frame.f_code.co_filename in own:
        frames = frames.tb_next
    return frames
