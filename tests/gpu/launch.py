"""launch.py WORLD COMMAND...: starts a command as so many ranks of this machine, with the variables that torchrun sets. The first rank that fails ends the others, and
its status is the exit status.
"""

import os
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start(command, world, port):
    shared = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for rank in range(world):
        own = {name: str(value) for name, value in (shared | {"RANK": rank, "LOCAL_RANK": rank}).items()}
        yield subprocess.Popen(command, env=os.environ | own)


def main():
    ranks = list(start(sys.argv[2:], int(sys.argv[1]), free_port()))
    status = 0
    while ranks:
        ended = [rank for rank in ranks if rank.poll() is not None]
        ranks = [rank for rank in ranks if rank not in ended]
        failed = [rank.returncode for rank in ended if rank.returncode]
        if failed and not status:
            status = failed[0]
            for rank in ranks:
                rank.terminate()
        time.sleep(0.05)
    return abs(status)


if __name__ == "__main__":
    sys.exit(main())
