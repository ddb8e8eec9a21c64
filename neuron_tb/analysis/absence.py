"""Why a capture has no device time: one sentence that says what to do next."""

from __future__ import annotations

from neuron_tb.converters.trace import Role, Trace


def why_no_device_time(trace: Trace) -> str | None:
    """The likely cause, None when the trace has device time."""
    if len(trace.executions):
        return None
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
