"""The GPU as its driver describes it, and where CUDA's libraries are."""

import ctypes
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

from budget import SKIPPED

# cuda.h: CUdevice_attribute
MULTIPROCESSORS, CLOCK_KHZ, MEMORY_KHZ, BUS_BITS, L2_BYTES, MAJOR, MINOR, READ_ONLY_REGISTRATION = 16, 13, 36, 37, 38, 75, 76, 113


class NoGpu(Exception):
    """Raised, with the reason, if there is no usable GPU."""


def cuda_version(number):
    return f"{number // 1000}.{number % 1000 // 10}"


def version_of(number):
    """Formats the version number of a library: 91900 is 9.19.0."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def driver_release():
    """Returns the version of the kernel module; None if it is not reported."""
    try:
        words = pathlib.Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return None
    numbers = [word for word in words if word.replace(".", "").isdigit() and "." in word]
    return numbers[0] if numbers else None


def describe(index=0):
    """Returns a dictionary of properties of a device. Raises NoGpu if there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoGpu(f"no NVIDIA driver: {error}") from None
    error = cuda.cuInit(0)
    count = ctypes.c_int()
    if error or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value <= index:
        raise NoGpu(f"the driver shows no GPU (cuInit says {error}, {count.value} devices)")
    device, name, memory, version = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_size_t(), ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    cuda.cuDriverGetVersion(ctypes.byref(version))

    def attribute(number):
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return value.value

    return {
        "gpu": name.value.decode(),
        "GPUs": count.value,
        "compute capability": f"{attribute(MAJOR)}.{attribute(MINOR)}",
        "multiprocessors": attribute(MULTIPROCESSORS),
        "clock MHz": attribute(CLOCK_KHZ) // 1000,
        "memory GiB": round(memory.value / 2**30, 1),
        # Two transfers per clock: the theoretical bandwidth of the bus.
        "memory GB/s of the bus": round(2e3 * attribute(MEMORY_KHZ) * attribute(BUS_BITS) / 8 / 1e9),
        "L2 MiB": attribute(L2_BYTES) >> 20,
        "registers read-only host memory": bool(attribute(READ_ONLY_REGISTRATION)),
        "driver": driver_release(),
        "CUDA of the driver": cuda_version(version.value),
    }


def state():
    """Returns the current clock, power and temperature of the GPU; None if nvidia-smi does not report them."""
    query = "--query-gpu=clocks.sm,power.draw,temperature.gpu"
    try:
        done = subprocess.run(["nvidia-smi", "-i", "0", query, "--format=csv,noheader"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = done.stdout.strip().split(", ")
    return f"SM at {words[0]}, {words[1]}, {words[2]} degrees" if not done.returncode and len(words) == 3 else None


def library_folders():
    """Returns folders with CUDA's libraries that the dynamic linker may not search: those of the toolkit and of Python packages (PyTorch depends on these)."""
    folders = [pathlib.Path("/usr/local/cuda/lib64")]
    found = importlib.util.find_spec("nvidia")
    for root in found.submodule_search_locations or [] if found else []:
        folders += sorted(pathlib.Path(root).glob("*/lib"))
    return [folder for folder in folders if folder.is_dir()]


def environment():
    """Returns the environment of this process with library_folders() appended to LD_LIBRARY_PATH."""
    known = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    # Idle OpenMP threads sleep instead of spinning.
    return dict(os.environ, OMP_WAIT_POLICY="passive", LD_LIBRARY_PATH=":".join(known + [str(folder) for folder in library_folders()]))


def library_versions():
    """Returns the versions of cuDNN, cuBLASLt and NCCL that programs with this environment load; None for a library that is not found."""
    found = {"cuDNN": None, "cuBLASLt": None, "NCCL": None}
    for name, library, call in (
        ("cuDNN", "libcudnn.so.9", "cudnnGetVersion"),
        ("cuBLASLt", "libcublasLt.so.12", "cublasLtGetVersion"),
        ("cuBLASLt", "libcublasLt.so.13", "cublasLtGetVersion"),
    ):
        try:
            function = getattr(ctypes.CDLL(library), call)
        except OSError:
            continue
        function.restype = ctypes.c_size_t
        found[name] = version_of(function())
    try:
        version = ctypes.c_int()
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
        found["NCCL"] = version_of(version.value)
    except OSError:
        pass
    return found


if __name__ == "__main__":
    # Runs in a separate process, because a driver may hang.
    try:
        print(json.dumps(describe() | library_versions()))
    except NoGpu as reason:
        print(reason, file=sys.stderr)
        sys.exit(SKIPPED)
