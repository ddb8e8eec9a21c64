"""What happens around one profile: the same steps for the class and for the patched torch.

Every function takes the profile and the method it stands before, calls that method exactly once,
and does nothing else for a profile that is left to plain torch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerAction, ProfilerActivity

from neuron_tb.profiler import manifest
from neuron_tb.profiler.activities import accelerators, asks_for_accelerator, translated
from neuron_tb.profiler.configuration import configured
from neuron_tb.profiler.device import core_count, synchronize_all, why_not
from neuron_tb.profiler.messages import say, say_once
from neuron_tb.profiler.options import Options
from neuron_tb.profiler.paths import capture_directory
from neuron_tb.profiler.recording import adopt
from neuron_tb.profiler.window import Window, attach, of

_STEPS_LOOKED_AHEAD = 100_000


def prepare_arguments(arguments: dict[str, Any], options: Options, *, takes_use_cuda: bool) -> None:
    """Change a profile's keyword arguments for Neuron, or leave them all alone.

    ``takes_use_cuda``: whether this torch still has the argument; where it has not, scripts that
    give it still run.
    """
    activities = arguments.get("activities")
    reason = why_not(options.backend)
    use_cuda = arguments.get("use_cuda")
    if not takes_use_cuda:
        arguments.pop("use_cuda", None)
    if reason is not None:
        _explain_plain(activities, use_cuda, reason, options)
        return
    if use_cuda and activities is None:
        activities = [ProfilerActivity.CPU]
    if activities is None:
        return
    # Read once here: torch would walk a generator twice and find nothing.
    asked = list(activities)
    mapped = translated(asked, always=options.device == "always" or bool(use_cuda))
    arguments["activities"] = mapped
    if asked != mapped:
        say_once("mapped", f"profiling {_text(asked)} as {_text(mapped)}", quiet=options.quiet)


def constructed(profile: Any, options: Options) -> None:
    """Remember a new profile when it is of a Neuron device."""
    if why_not(options.backend) is None and profile.use_device == options.backend:
        attach(profile, Window(options, profile.experimental_config))


def prepare_trace(profile: Any, original: Callable[[], None]) -> None:
    """Choose directory and configuration, then let torch make its session."""
    window = of(profile)
    if window is None:
        original()
        return
    options = window.options
    directory = capture_directory(getattr(profile, "on_trace_ready", None), options.directory)
    try:
        profile.experimental_config, window.place = configured(
            window.config, directory, options.config, verbose=profile.with_stack
        )
    except OSError as error:
        say_once("place", f"no files of the Neuron Runtime: {directory}: {error}", failure=True)
    if window.temporary is not None:
        window.temporary.unlink(missing_ok=True)
    window.saved = window.temporary = None
    window.prepared_ns = time.time_ns()
    say_once("place", _where(window), quiet=options.quiet)
    original()
    adopt(profile.profiler, window)


def start_trace(profile: Any, original: Callable[[], None]) -> None:
    """Note where the window begins, then let torch start it."""
    window = of(profile)
    if window is not None:
        action = getattr(profile, "current_action", ProfilerAction.RECORD)
        if action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            window.recorded += 1
        window.first_step = getattr(profile, "step_num", None)
    original()


def stop_trace(profile: Any, original: Callable[[], None]) -> None:
    """Note where the window ends; the recording waits for all cores before it stops."""
    window = of(profile)
    if window is not None:
        window.last_step = getattr(profile, "step_num", None)
        if window.last_step is not None and not window.ending:
            # step() has already counted the step that follows the window.
            window.last_step -= 1
    original()


def step(profile: Any, original: Callable[[], None]) -> None:
    """Wait at every step when the user asked for it."""
    window = of(profile)
    if window is not None and window.options.sync_steps:
        synchronize_all(window.options.backend)
    original()


def stop(profile: Any, original: Callable[[], None]) -> None:
    """Say so when the profile ends and its schedule never came to an active step."""
    window = of(profile)
    if window is not None:
        window.ending = True
    try:
        original()
    finally:
        if window is not None:
            window.ending = False
    if window is not None and profile.record_steps and not window.recorded:
        say(_nothing_recorded(profile))


def export_chrome_trace(
    profile: Any, original: Callable[..., None], path: Any, **more: Any
) -> None:
    """Let torch write the trace, and a manifest beside it. Takes a Path as well."""
    window = of(profile)
    if window is None:
        original(path, **more)
        return
    path = os.fspath(path)
    original(path, **more)
    if window.saved is None or not window.saved.exists():
        # torch writes .gz by way of a temporary file, which is gone by now.
        window.saved = Path(path).absolute()
    manifest.write(Path(path), profile, window)


def toggle(
    profile: Any,
    original: Callable[[bool, Iterable[ProfilerActivity]], None],
    enable: bool,
    activities: Iterable[ProfilerActivity],
) -> None:
    """Switch what can be switched: the device's collection cannot, which is said once."""
    window = of(profile)
    if window is None:
        original(enable, activities)
        return
    wanted = list(activities)
    device = accelerators()
    rest = [activity for activity in wanted if activity not in device]
    if len(rest) != len(wanted):
        say_once(
            "toggle",
            "torch cannot switch the collection of Neuron's device work on and off within a "
            "profile; it stays on",
            failure=True,
        )
    if rest:
        original(enable, rest)


def _explain_plain(activities: Any, use_cuda: Any, reason: str, options: Options) -> None:
    if torch.cuda.is_available():
        return
    asked = use_cuda or (isinstance(activities, Collection) and asks_for_accelerator(activities))
    if asked or options.device == "always":
        say_once(
            "plain",
            f"an accelerator was asked for, but this profile is plain torch's: {reason}",
            quiet=options.quiet,
        )


def _where(window: Window) -> str:
    cores = core_count(window.options.backend)
    place = f"; the Neuron Runtime's files go to {window.place}" if window.place.name else ""
    return f"profiling {window.options.backend} ({cores if cores else '?'} cores){place}"


def _text(activities: list[Any]) -> str:
    names = [getattr(activity, "name", None) or str(activity) for activity in activities]
    return "[" + ", ".join(sorted(names)) + "]"


def _nothing_recorded(profile: Any) -> str:
    reached = profile.step_num
    first = next(
        (
            number
            for number in range(reached, reached + _STEPS_LOOKED_AHEAD)
            if profile.schedule(number) in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        ),
        None,
    )
    cause = "step() was never called" if reached == 0 else f"step() was called {reached} times"
    if first is None:
        return f"the profile recorded nothing: {cause}, and its schedule has no active step left."
    return (
        f"the profile recorded nothing: {cause}, its schedule's first active step is {first} "
        f"(reached step {reached} of {first}). Run longer, or shorten wait, warmup or skip_first."
    )
