"""Names that were seen on real hosts, and what they say."""

import pytest

from llmhost.config.schema import SegmentNames
from llmhost.model.segment import SegmentKind
from llmhost.model.segment_names import kind_of

HEX32 = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
REAL = [
    # CPython
    ("psm_e1a2b3c4", SegmentKind.PYTHON_SHM, None),
    ("pym-4711-k3_xw0ab", SegmentKind.PYTHON_SHM, 4711),
    ("sem.mp-cg73a8ss", SegmentKind.SEMAPHORE, None),
    ("sem.mp-pms8jlvn", SegmentKind.SEMAPHORE, None),
    # joblib and loky
    ("sem.loky-9012-1k_2abcz", SegmentKind.LOKY, 9012),
    (f"joblib_memmapping_folder_3714_{HEX32}_{HEX32}/3714-139675070605072-{HEX32}.pkl", SegmentKind.LOKY, 3714),
    # NCCL
    ("nccl-vzIpS6", SegmentKind.NCCL, None),
    ("nccl-shm-send-8d0ca7f2c6d21c35-0-1-0", SegmentKind.NCCL, None),
    # PyTorch
    ("torch_4711_2847564_0", SegmentKind.TORCH, 4711),
    ("torch_12_3967283542_118", SegmentKind.TORCH, 12),
    # vLLM
    (f"vllm_dist_{HEX32}-tp:0-[0-1]-cpushm_0", SegmentKind.VLLM, None),
    ("vllm_offload_8c1f3f4e-5b8d-4d9e-9d2c-3f1f6a7b8c9d.mmap", SegmentKind.VLLM, None),
    ("VLLM_OBJECT_STORAGE_SHM_BUFFER", SegmentKind.VLLM, None),
    (f"VLLM_OBJECT_STORAGE_SHM_BUFFER_{HEX32}", SegmentKind.VLLM, None),
    # SGLang
    ("sgl_shm_mm_4711_1a2b3c4d", SegmentKind.SGLANG, 4711),
    ("sgl_shm_mq_1234_abcd1234", SegmentKind.SGLANG, 1234),
    ("multi_tokenizer_args_5678", SegmentKind.SGLANG, 5678),
    ("sglang_loads_30000.shm", SegmentKind.SGLANG, None),
    # CUDA, MPS, NVSHMEM; the pid of cuda.shm.* is said to be hexadecimal, and is not taken
    ("cuda.shm.3e9.52f2.1", SegmentKind.CUDA, None),
    ("mps.shm.1000.4428", SegmentKind.CUDA, 4428),
    ("nvshmem-shm-0", SegmentKind.CUDA, None),
    # OpenMP
    ("__KMP_REGISTERED_LIB_4711_1000", SegmentKind.OPENMP, 4711),
    ("__KMP_REGISTERED_LIB_4711", SegmentKind.OPENMP, 4711),
]
FOREIGN = [
    "PostgreSQL.3158292",
    "pulse-shm-1746316362",
    "mono.4711",
    "triton_python_backend_shm_region_1",
    "sem.WeQCB4",  # a semaphore while glibc makes it, of whatever program
    "sem.mysem",
    "sem.mp-",
    "sem.mp-cg73a8ss.bak",
    "psm_",
    "psm_backup",
    "psm_E1A2B3C4",
    "psm_e1a2b3c45",
    "psm_e1a2b3c4\n",
    "wnsm_e1a2b3c4",  # of Windows
    "nccl-notes.txt",
    "torch_cache",
    "torch_4711_2847564",
    "torch_0_2847564_0",
    "vllm_dist_",
    "vllm_offload_",
    "VLLM_OBJECT_STORAGE_SHM_BUFFER_old",
    "sgl_shm_garbage",
    "multi_tokenizer_args_",
    "multi_tokenizer_args_١٢",  # digits, but not the kernel's
    "backup/psm_e1a2b3c4",  # shm_open(3) makes no files in directories
    "",
]


@pytest.mark.parametrize(("name", "kind", "pid"), REAL)
def test_a_name_gives_its_kind_and_its_makers_pid(name: str, kind: SegmentKind, pid: int | None) -> None:
    assert kind_of(name) == (kind, pid)


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_listed_is_other(name: str) -> None:
    assert kind_of(name) == (SegmentKind.OTHER, None)


def test_every_kind_has_a_real_name() -> None:
    assert {kind for _, kind, _ in REAL} == set(SegmentKind) - {SegmentKind.OTHER}


def test_rows_of_the_config_go_first_and_the_first_that_matches_decides() -> None:
    rows = (
        SegmentNames(pattern="psm_dead*", kind=SegmentKind.OTHER),
        SegmentNames(pattern="psm_*", kind=SegmentKind.VLLM),
        SegmentNames(pattern="weights/*.bin", kind=SegmentKind.VLLM),
        SegmentNames(pattern="TORCH_*", kind=SegmentKind.NCCL),
    )
    assert kind_of("psm_deadbeef", rows) == (SegmentKind.OTHER, None)
    assert kind_of("psm_e1a2b3c4", rows) == (SegmentKind.VLLM, None)
    assert kind_of("weights/a/b.bin", rows) == (SegmentKind.VLLM, None)
    assert kind_of("torch_4711_1_0", rows) == (SegmentKind.TORCH, 4711)  # case counts


def test_brackets_in_a_name_are_no_glob() -> None:
    name = f"vllm_dist_{HEX32}-tp:0-[0-1]-cpushm_0"
    assert kind_of(name, (SegmentNames(pattern="*-[[]0-1]-cpushm_?", kind=SegmentKind.OTHER),))[0] is SegmentKind.OTHER
    assert kind_of(name, (SegmentNames(pattern="*-[0-1]-cpushm_?", kind=SegmentKind.OTHER),))[0] is SegmentKind.VLLM
