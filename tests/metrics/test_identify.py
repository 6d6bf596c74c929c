"""Names of kernels: what communicates, what does not although its name sounds so, and what belongs to experts."""

from __future__ import annotations

import pytest

from metrics import identify
from metrics.traces.timeline import MOE, CopyKind, Op
from tests.metrics.build import ALLREDUCE, SENDRECV

COMMUNICATE = (
    ALLREDUCE, SENDRECV,
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "ncclKernelAllGatherCtranDirect",
    "void multimem_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16*, unsigned long, unsigned int**)",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
    "void tensorrt_llm::kernels::twoShotAllReduceKernel<float, 8>(AllReduceParams)",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<__half, 8>(P)",
    "void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)",
    "void deep_ep::intranode::combine<__nv_bfloat16>(P)",
    "void tensorrt_llm::kernels::moe_a2a::moeA2ADispatchKernel<Policy>(P)",
    "void mscclpp::allreduce7<float>(P)", "mscclKernel_Sum_half_LL",
    "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)",
    "ncclSymkDevKernel_ReduceScatter_LDMC_sum_f16(ncclSymkDevWorkArgs4K)",
)  # fmt: skip
COMPUTE = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::collective::CollectiveMma<X>>>",
    "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>(Params)",
    "cutlass3x_sm90_tensorop_epilogue_Sm90RowBroadcast_GemmUniversal", "triton_poi_fused_broadcast_add_0",
    "void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda>(int)", "void send_tokens_to_sampler(int)",
    "void flash::flash_fwd_splitkv_combine_kernel<Traits>(Params)", "void at::native::sbtopk::gatherTopK<float>(P)",
    "void at::native::reduce_kernel<512, 1, ReduceOp<float>>(P)",
)  # fmt: skip
EXPERTS = (
    "fused_moe_kernel", "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", "_finalize_matmul_scatter_bf16",
    "void vllm::moe::moe_align_block_size_kernel<int>(P)", "void vllm::moe::topkGatingSoftmax<8, 256>(P)",
    "triton_poi_fused_constant_pad_nd_moe_forward_0", "void deep_ep::internode_ll::combine<7168>(void*)",
)  # fmt: skip


@pytest.mark.parametrize("name", COMMUNICATE)
def test_communicates(name: str) -> None:
    assert identify.communicates(name)


@pytest.mark.parametrize("name", (*COMPUTE, "fused_moe_kernel"))
def test_computes(name: str) -> None:
    assert not identify.communicates(name)


@pytest.mark.parametrize("name", EXPERTS)
def test_belongs_to_experts(name: str) -> None:
    assert identify.flags(name) == MOE


@pytest.mark.parametrize("name", (*COMPUTE, ALLREDUCE, "void smoelastic(int)"))
def test_does_not_belong_to_experts(name: str) -> None:
    assert identify.flags(name) == 0


@pytest.mark.parametrize(
    ("name", "op"),
    [
        (ALLREDUCE, Op.ALLREDUCE), (SENDRECV, Op.UNKNOWN), ("ncclDevKernel_Generic(x)", Op.UNKNOWN),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", Op.REDUCESCATTER),
        ("ncclDevKernel_AllGather_RING_LL", Op.ALLGATHER),
        ("ncclSymDevKernel_AllGather_LLMC(ncclSymDevArgs)", Op.ALLGATHER),
        ("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16(x)", Op.ALLREDUCE),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(x)", Op.BROADCAST),
        ("void vllm::cross_device_reduce_2stage<x>", Op.ALLREDUCE),
        ("void deep_ep::intranode::dispatch<x>", Op.ALLTOALL),
    ],
)  # fmt: skip
def test_operation_of_a_kernel_name(name: str, op: Op) -> None:
    assert identify.op_of_kernel(name) is op


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("allreduce", Op.ALLREDUCE), ("_allgather_base", Op.ALLGATHER), ("nccl:_all_gather_base", Op.ALLGATHER),
        ("reduce_scatter_tensor_coalesced", Op.REDUCESCATTER), ("nccl:all_to_all, op_id = 991144", Op.ALLTOALL),
        ("all_to_allv", Op.ALLTOALL), ("nccl:send 0->1", Op.P2P), ("nccl:recv 1<-0", Op.P2P),
        ("broadcast", Op.BROADCAST),
        ("wait", Op.UNKNOWN),
    ],
)  # fmt: skip
def test_operation_of_an_annotation(name: str, op: Op) -> None:
    assert identify.op_of_collective(name) is op


def test_broadcast_is_local_in_xla() -> None:
    assert identify.op_of_hlo("broadcast") is None
    assert identify.op_of_hlo("all-gather-start") is Op.ALLGATHER


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("Float", 4),
        ("BFloat16", 2),
        ("Char", 1),
        ("Float8_e4m3fn", 1),
        ("Long", 8),
        ("bf16", 2),
        ("pred", 1),
        ("odd", None),
    ],
)
def test_element_bytes(dtype: str, size: int | None) -> None:
    assert identify.element_bytes(dtype) == size


def test_copy_kinds() -> None:
    assert identify.copy_kind("Memcpy HtoD (Pinned -> Device)") is CopyKind.H2D
    assert identify.copy_kind("Memset (Device)") is CopyKind.MEMSET
    assert identify.copy_kind("Memcpy PtoP (Device -> Device)") is CopyKind.P2P
