"""What the events of the Neuron runtime are called.

Names: AWS Neuron documentation (system profiles and their event filters), and runtime 2.31.
"""

from __future__ import annotations

NUMBERED = (
    "generic",
    "nrt_load",
    "nrt_post_request",
    "nrt_execute",
    "kmgr_exec_core",
    "nrt_load_collectives",
    "cc_exec_barrier",
    "nc_exec_running",
    "cc_running",
    "nrt_tensor_read",
    "nrt_tensor_write",
    "nrt_tensor_read_batch",
    "nrt_tensor_write_batch",
    "numerical_err",
    "enc_barrier_recv",
    "enc_barrier_send",
    "enc_barrier",
    "kbl_exec_pre",
    "kbl_exec_core",
    "kbl_exec_wait",
    "kbl_exec_post",
    "nrt_model_switch",
    "nrt_model_submit",
    "nrt_async_sema_wait",
    "hw_notify",
    "timestamp_sync_point",
    "nc_model_switch",
    "nrt_tensor_allocate",
    "nrt_tensor_free",
    "tensor_block_while_exec",
    "dmem_buf_copyin",
    "dmem_buf_copyout",
    "dmem_buf_batch_copyin",
    "dmem_buf_batch_copyout",
    "nrt_dma_mem_alloc",
    "nrt_dma_mem_dealloc",
    "exec_consume_tpb_status_notifications",
    "exec_consume_cc_core_notifications",
    "notification_consume_errors",
    "exec_consume_gpsimd_stdio",
    "nrt_cc_prepare",
    "nrt_cc_schedule",
    "hostcc_build_ctx",
    "hostcc_load",
    "hostcc_exec",
    "hostcc_wait",
)
"""By number, as runtime 2.31 has them."""

OTHERS = (
    "nrta_execute_schedule",
    "nrt_profile_add_node_info",
    "dlr_infer",
    "kbl_infer_exec_wait",
)
"""Of older and newer runtimes."""

ALIASES = {
    "model_load": "nrt_load",
    "device_exec": "nc_exec_running",
    "cc_exec": "cc_running",
    "cc_load": "nrt_load_collectives",
    "runtime_execute": "kmgr_exec_core",
}
"""Neuron's other names of its events."""
HARDWARE = (
    "cc_exec_barrier",
    "nc_exec_running",
    "cc_running",
    "numerical_err",
    "hw_notify",
    "timestamp_sync_point",
    "nc_model_switch",
)
"""What Neuron calls ``hardware``: events that the device reports."""
