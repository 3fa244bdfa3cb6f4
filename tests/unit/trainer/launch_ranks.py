#!/usr/bin/env python3
"""Starts a program as ranks that connect over TCP, as torchrun would: launch_ranks.py WORLD PROGRAM [ARGUMENT...]

Ends with 0 if all ranks do, else with the first status that is not 0.
"""

import os
import secrets
import socket
import subprocess
import sys


def free_port() -> int:
    """A port that nobody uses now; rank 0 takes one of the next if that changes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start(world: int, command: list, address: str = "127.0.0.1", **more) -> list:
    """Starts all ranks. more: environment variables of all."""
    common = {**os.environ, "MASTER_ADDR": address, "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world)}
    common.setdefault("LOADERD_RANKS_KEY", secrets.token_hex())
    common.update(more)
    return [subprocess.Popen(command, env={**common, "RANK": str(rank)}) for rank in range(world)]


if __name__ == "__main__":
    statuses = [process.wait() for process in start(int(sys.argv[1]), sys.argv[2:])]
    sys.exit(next((status for status in statuses if status), 0))
