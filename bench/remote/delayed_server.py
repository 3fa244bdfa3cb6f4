"""Serves ranges of a file by HTTP, each reply so many seconds after its request: delayed_server.py FILE SECONDS. Prints its port. Bytes go from file to socket in the kernel."""

import asyncio
import os
import re
import sys

PATH, DELAY_S = sys.argv[1], float(sys.argv[2])
SIZE = os.path.getsize(PATH)


async def serve(reader, writer):
    loop = asyncio.get_running_loop()
    try:
        with open(PATH, "rb") as file:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                first, last = map(int, re.search(rb"Range: bytes=(\d+)-(\d+)", request).groups())
                last = min(last, SIZE - 1)
                if DELAY_S >= 0.001:  # the shortest that asyncio can wait
                    await asyncio.sleep(DELAY_S)
                writer.write(b"HTTP/1.1 206 Partial Content\r\nContent-Length: %d\r\nContent-Range: bytes %d-%d/%d\r\nETag: \"1\"\r\n\r\n"
                             % (last - first + 1, first, last, SIZE))
                await loop.sendfile(writer.transport, file, first, last - first + 1)
    except (asyncio.IncompleteReadError, ConnectionError, RuntimeError):
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
