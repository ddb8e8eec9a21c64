"""Why a capture has no device time: one sentence that says what to do next."""

from __future__ import annotations

from neuron_tb.converters.model import Role, Trace


def why_no_device_time(trace: Trace) -> str | None:
    """The likely cause, None when the trace has device time."""
    if len(trace.executions):
        return None
    if trace.links.left_out:
        options = trace.filtered.rpartition(": ")[0]
        return (
            f"No device time: of {trace.links.left_out:,} executions nothing is left after "
            f"{options}. `neuron-tb info` says what the capture has."
        )
    if trace.devices and all(device.detail for device in trace.devices) and not _operators(trace):
        return (
            "No device time: a device profile shows the engines inside executions, not which "
            "operator they belong to. `neuron-tb roofline` prints its figures."
        )
    called_runtime = bool(trace.roles(Role.RUNTIME).any())
    neuron = any(device.family == "neuron" for device in trace.devices) or any(
        "neuron" in str(metadata.get("distributedInfo", "")).lower() for metadata in trace.metadata
    )
    if called_runtime:
        return (
            "No device time: the runtime was called, but no execution finished inside the "
            "recording. Call torch.neuron.synchronize() before the profiler stops."
        )
    if neuron:
        return (
            "No device time: the trace has host events only and no system profile lies beside "
            "it. Put Neuron Explorer's system_profile.json into the capture's directory."
        )
    return (
        "No device time: only CPU activity was recorded. Ask for ProfilerActivity.PrivateUse1 and "
        "call torch.neuron.synchronize() before the profiler stops, or put Neuron Explorer's "
        "system_profile.json beside trace.json."
    )


def _operators(trace: Trace) -> bool:
    return bool(trace.roles(Role.OPERATOR).any())
