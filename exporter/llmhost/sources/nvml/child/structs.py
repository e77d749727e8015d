"""NVML's structures as nvml.h lays them out; pynvml of 12.535 lacks some of them."""

import ctypes


class MemoryV1(ctypes.Structure):
    _fields_ = (("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64))


class MemoryV2(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64),
        ("free", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
    )


class ProcessInfo(ctypes.Structure):  # nvmlProcessInfo_v2_t, the same as nvmlProcessInfo_t of the _v3 calls
    _fields_ = (("pid", ctypes.c_uint32), ("used", ctypes.c_uint64), ("gi", ctypes.c_uint32), ("ci", ctypes.c_uint32))


class PciInfo(ctypes.Structure):
    _fields_ = (("legacy", ctypes.c_char * 16), ("numbers", ctypes.c_uint32 * 5), ("bus_id", ctypes.c_char * 32))


class Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint32), ("memory", ctypes.c_uint32))


class FabricV1(ctypes.Structure):
    _fields_ = (
        ("cluster", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint32),
        ("clique", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
    )


class FabricV2(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32),
        ("cluster", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint32),
        ("clique", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("health", ctypes.c_uint32),
    )


class EventData(ctypes.Structure):  # nvmlEventData_t; that of nvmlEventSetWait without _v2 ends before gi
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_uint64),
        ("data", ctypes.c_uint64),
        ("gi", ctypes.c_uint32),
        ("ci", ctypes.c_uint32),
    )


def struct_version(kind: type[ctypes.Structure], number: int) -> int:
    return ctypes.sizeof(kind) | number << 24  # nvml.h: NVML_STRUCT_VERSION
