"""The GPU as its driver describes it, and where CUDA's libraries are."""

import ctypes
import importlib.util
import os
import pathlib
import subprocess
import sys

# cuda.h: CUdevice_attribute
MULTIPROCESSORS, CLOCK_KHZ, MEMORY_KHZ, BUS_BITS, L2_BYTES, MAJOR, MINOR, READ_ONLY_REGISTRATION = 16, 13, 36, 37, 38, 75, 76, 113


class NoGpu(Exception):
    """Why there is none to be used."""


def cuda_version(number):
    return f"{number // 1000}.{number % 1000 // 10}"


def driver_release():
    """Of the kernel's module, None where it does not say."""
    try:
        words = pathlib.Path("/proc/driver/nvidia/version").read_text().split()
    except OSError:
        return None
    numbers = [word for word in words if word.replace(".", "").isdigit() and "." in word]
    return numbers[0] if numbers else None


def describe(index=0):
    """A dictionary of facts about a device. NoGpu says why there is none."""
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
        "compute capability": f"{attribute(MAJOR)}.{attribute(MINOR)}",
        "multiprocessors": attribute(MULTIPROCESSORS),
        "clock MHz": attribute(CLOCK_KHZ) // 1000,
        "memory GiB": round(memory.value / 2**30, 1),
        # Two transfers a clock; what the numbers of the bus promise, not what is reached.
        "memory GB/s of the bus": round(2e3 * attribute(MEMORY_KHZ) * attribute(BUS_BITS) / 8 / 1e9),
        "L2 MiB": attribute(L2_BYTES) >> 20,
        "registers read-only host memory": bool(attribute(READ_ONLY_REGISTRATION)),
        "driver": driver_release(),
        "CUDA of the driver": cuda_version(version.value),
    }


def library_folders():
    """Folders with CUDA's libraries that the dynamic linker may not know: the toolkit's, and those of Python packages (PyTorch brings them)."""
    folders = [pathlib.Path("/usr/local/cuda/lib64")]
    found = importlib.util.find_spec("nvidia")
    for root in found.submodule_search_locations or [] if found else []:
        folders += sorted(pathlib.Path(root).glob("*/lib"))
    return [folder for folder in folders if folder.is_dir()]


def environment():
    """This one's, with those folders where programs look for libraries, behind those that are there already."""
    known = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    return dict(os.environ, LD_LIBRARY_PATH=":".join(known + [str(folder) for folder in library_folders()]))


def library_versions(environment):
    """Of cuDNN and cuBLASLt, asked of the libraries that programs with that environment get."""
    ask = (
        "import ctypes\n"
        "for name, call in (('libcudnn.so.9', 'cudnnGetVersion'), ('libcublasLt.so.13', 'cublasLtGetVersion'),\n"
        "                   ('libcublasLt.so.12', 'cublasLtGetVersion')):\n"
        "    try:\n"
        "        function = getattr(ctypes.CDLL(name), call)\n"
        "        function.restype = ctypes.c_size_t\n"
        "        print(name, function())\n"
        "    except OSError:\n"
        "        pass\n"
    )
    done = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, timeout=60)
    found = dict(line.split() for line in done.stdout.splitlines())
    cublas = next((value for name, value in found.items() if "cublasLt" in name), None)
    return {"cuDNN": found.get("libcudnn.so.9"), "cuBLASLt": cublas}
