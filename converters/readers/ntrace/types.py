"""Types of runtime events by number, and which attributes go with which types.

From what is known of runtime 2.31; numbers differ between versions, so they are believed only
where the attributes of the same file agree with them (``numbering``).
"""

from __future__ import annotations

from dataclasses import dataclass

from neuron_tb.converters.readers.neuron.event_names import NUMBERED

KNOWN_TYPES = len(NUMBERED)


def type_name(number: int) -> str:
    """What a type is called in the runtime's own JSON; ``event_type_<n>`` when not known."""
    return NUMBERED[number] if 0 <= number < KNOWN_TYPES else f"event_type_{number}"


def _numbers(*names: str) -> frozenset[int]:
    return frozenset(map(NUMBERED.index, names))


HARDWARE = _numbers(
    "cc_exec_barrier",
    "nc_exec_running",
    "cc_running",
    "numerical_err",
    "hw_notify",
    "timestamp_sync_point",
    "nc_model_switch",
)
ONLY_POINTS = _numbers("hw_notify", "timestamp_sync_point")
"""Types that never start anything."""
NEVER_INSTANT = _numbers("nrt_load", "nrt_execute", "nc_exec_running")
"""Types that always have a length."""


@dataclass(frozen=True, slots=True)
class AllowedTypes:
    """The types that an attribute goes with; ``only``: one elsewhere is a contradiction."""

    types: frozenset[int]
    only: bool = True


_COLLECTIVE = _numbers("cc_running")
_BARRIERS = _numbers("enc_barrier_recv", "enc_barrier_send", "enc_barrier")
_COPIES = _numbers("dmem_buf_copyin", "dmem_buf_copyout")
_BATCHES = _numbers("dmem_buf_batch_copyin", "dmem_buf_batch_copyout")
_TENSOR_BATCHES = _numbers("nrt_tensor_read_batch", "nrt_tensor_write_batch")
_TENSORS = _TENSOR_BATCHES | _numbers(
    "nrt_tensor_read",
    "nrt_tensor_write",
    "nrt_tensor_allocate",
    "nrt_tensor_free",
    "tensor_block_while_exec",
)
_DMA_MEMORY = _numbers("nrt_dma_mem_alloc", "nrt_dma_mem_dealloc")
_KERNEL_CALLS = _numbers("kbl_exec_pre", "kbl_exec_core", "kbl_exec_wait", "kbl_exec_post")
_CONSUMERS = _numbers(
    "exec_consume_tpb_status_notifications",
    "exec_consume_cc_core_notifications",
    "notification_consume_errors",
    "exec_consume_gpsimd_stdio",
)

ATTRIBUTE_TYPES = {
    "nc_timestamp_ns": AllowedTypes(HARDWARE),
    "cpu_timestamp_ns": AllowedTypes(_numbers("timestamp_sync_point")),
    "device_core_idx": AllowedTypes(HARDWARE | _numbers("nrt_model_switch")),
    "is_neuron_core_work": AllowedTypes(_numbers("nrt_model_switch")),
    "op_id": AllowedTypes(_COLLECTIVE),
    "algorithm": AllowedTypes(_COLLECTIVE),
    "custom_data": AllowedTypes(_numbers("hw_notify")),
    "tensor_id": AllowedTypes(_TENSORS),
    "ref_count": AllowedTypes(_numbers("nrt_tensor_free")),
    "num_batches": AllowedTypes(_TENSOR_BATCHES | _BATCHES),
    "mem_handle": AllowedTypes(_COPIES),
    "mem_type": AllowedTypes(_COPIES | _BATCHES),
    "total_num_ops": AllowedTypes(_BATCHES),
    "hbm_idx": AllowedTypes(_DMA_MEMORY),
    "usage_type": AllowedTypes(_DMA_MEMORY),
    "allocated_bytes": AllowedTypes(_DMA_MEMORY),
    "freed_bytes": AllowedTypes(_DMA_MEMORY),
    "peer_id": AllowedTypes(_BARRIERS),
    "nec_dev_id": AllowedTypes(_BARRIERS),
    "available_request_slots": AllowedTypes(_numbers("nrt_async_sema_wait")),
    "g_device_id": AllowedTypes(_numbers("nrt_load_collectives")),
    "exec_id": AllowedTypes(HARDWARE | _KERNEL_CALLS | _CONSUMERS | _BARRIERS, only=False),
}
"""Attributes that tell types apart; ``exec_id`` may be found elsewhere too."""
