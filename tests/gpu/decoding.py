"""The part decoding: compares JPEG decoding on the GPU (nvJPEG, through torchvision) with loaderd on the CPU, and measures training while the GPU decodes."""

import json

import ahead
from loaders import Program
from feeding import copies_of, files_of
from setup import Skipped

SIDE = 224


def decoder(setup, limit):
    """Starts PyTorch decoding the photographs in batches. Returns the program, ready and stopped."""
    batch = setup.size("fed")[2]
    program = Program(ahead.torch_command(setup, "torchdecode.py", data=str(files_of(setup, limit)), batch=batch), ahead.cpus(), ahead.START_LIMIT)
    program.wait_started()
    program.pause()
    return program


def loader(setup, limit):
    """Returns images/s of loaderd with all threads: decoding, cropping and resizing."""
    command = [
        setup.program("bench/loaderbench"), "--daemon", setup.program("loaderd/loaderd"), "--json", "-", "--batch", setup.size("fed")[2], "--rounds", 1,
        "--threads", len(ahead.cpus()), "--warmup", "0.5", "--seconds", setup.size("seconds"), copies_of(setup, limit), f"random_resized_crop({SIDE}) hflip",
    ]  # fmt: skip
    return json.loads(setup.output(command, limit))["rows"][0]["images_per_s"]


def measure_both(setup, decode, train):
    """Measures decoding and training at the same time. Returns images/s of both."""
    warmup, seconds = setup.size("warmup"), setup.size("seconds")
    decode.resume()
    # Decoding starts before the measurement of training and ends after it.
    decode.ask(warmup, warmup + seconds + 1)
    trained = train.measure(warmup, seconds)
    decoded = decode.read(ahead.START_LIMIT)["images_per_s"]
    decode.pause()
    return decoded, trained


def decoding(setup, part, limit):
    """Measures images/s decoded by the GPU and by loaderd on the CPU, and the speed of a network while the GPU decodes."""
    if not setup.torch:
        raise Skipped("it needs PyTorch with torchvision")
    warmup, seconds = setup.size("warmup"), setup.size("seconds")
    network = setup.size("fed")
    programs = []
    try:
        decode = decoder(setup, limit)
        programs.append(decode)
        train = Program(setup.bench_command(network, "--serve", "-p", setup.precisions()[0]), ahead.cpus(), environment=setup.environment)
        programs.append(train)
        train.wait_ready()
        train.pause()
        alone = train.measure(warmup, seconds)
        train.pause()
        decoded = decode.measure(warmup, seconds)
        decode.pause()
        ours = loader(setup, limit)
        decoded_beside, trained_beside = measure_both(setup, decode, train)
    finally:
        for program in programs:
            program.close()
    part.figure("gpu_decodes_images_per_s", decoded)
    part.figure("gpu_left_percent", 100 * trained_beside / alone)
    part.table(
        f"Decoding photographs of short side 256; {network[0]} at {network[1]} trains on random batches",
        ["", "images/s", "beside the other, images/s", "%"],
        [
            ["torchvision's decode_jpeg on the GPU, whole images", decoded, decoded_beside, 100 * decoded_beside / decoded],
            [f"loaderd, {len(ahead.cpus())} threads, decoded, cropped and resized to {SIDE}", ours, None, None],
            [f"training {network[0]}", alone, trained_beside, 100 * trained_beside / alone],
        ],
        [decode.properties["settings"]],
    )
