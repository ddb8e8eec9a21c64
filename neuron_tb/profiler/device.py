"""Is there a Neuron device here, and waiting for all of its cores."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import profiler

from neuron_tb.profiler.messages import say_once

_supported_activities: Any = profiler.supported_activities

_UNNAMED = "privateuseone"


def why_not(backend: str) -> str | None:
    """The reason why profiles are left to plain torch; None when Neuron is the device here."""
    if torch.cuda.is_available():
        return "this machine has CUDA"
    name = torch._C._get_privateuse1_backend_name()
    if name == _UNNAMED:
        return "no Neuron backend is loaded (import torch_neuronx first)"
    if name != backend:
        return f"the loaded backend is {name}, not {backend}"
    if profiler.ProfilerActivity.PrivateUse1 not in _supported_activities():
        # Seen with the CUDA build of torch 2.9; its CPU build does.
        return f"this build of torch ({torch.__version__}) does not profile PrivateUse1 devices"
    available = getattr(_module(backend), "is_available", None)
    if available is not None and not available():
        return f"torch.{backend}.is_available() is False"
    return None


def core_count(backend: str) -> int | None:
    """How many cores this process sees, None when the backend does not say."""
    count = getattr(_module(backend), "device_count", None)
    return None if count is None else int(count())


def synchronize_all(backend: str) -> None:
    """Wait for every core, not only the current one. Never raises: a host trace is worth keeping.

    torch waits for the current device alone when a profile stops; work of the other cores would
    then be missing from it.
    """
    try:
        _synchronize(backend)
    except Exception as error:
        say_once(
            "synchronize",
            f"waiting for the Neuron cores failed ({type(error).__name__}: {error}); device work "
            "may be missing from the profile",
            failure=True,
        )


def _synchronize(backend: str) -> None:
    module = _module(backend)
    wait = getattr(module, "synchronize", None)
    if wait is None:
        wait = getattr(sys.modules.get("torch_neuronx"), "synchronize", None)
    if wait is None:
        return
    for core in range(core_count(backend) or 0) or (None,):
        if core is None:
            wait()
            continue
        try:
            wait(core)
        except TypeError:
            # This synchronize takes no device; once is all there is to call.
            wait()
            return


def _module(backend: str) -> Any:
    return getattr(torch, backend, None)
