"""Processes of multiprocessing and a loop of asyncio, until a file is there: a pool, queues, locks, shared memory, a
server with its clients, subprocesses and timers. Every result is checked.

usage: processes.py FILE
"""
import asyncio
import hashlib
import multiprocessing
import os
import sys
import time
from multiprocessing import shared_memory

# Seconds that it works at least.
LEAST = 1
STEPS = 20_000
COUNTERS = 3
# More than fits into a socket's buffers.
SIZE = 1_000_000

start = time.monotonic()


def going(end):
    return time.monotonic() - start < LEAST or not os.path.exists(end)


def compute(number):
    for _ in range(STEPS):
        number = (number * 1103515245 + 12345) & 0x7FFFFFFF
    return number


def count(name, lock, end, counted):
    """Adds to a number in shared memory, under a lock; says at its end how often."""
    memory = shared_memory.SharedMemory(name)
    turns = 0
    while going(end):
        with lock:
            value = int.from_bytes(memory.buf[:8], "little")
            time.sleep(0.0005)
            memory.buf[:8] = (value + 1).to_bytes(8, "little")
        turns += 1
    memory.close()
    counted.put(turns)


def reverse(asked, answers):
    for text in iter(asked.get, None):
        answers.put(text[::-1])


async def serve(reader, writer):
    while line := await reader.readline():
        body = await reader.readexactly(int(line))
        writer.write(hashlib.sha256(body).hexdigest().encode() + b"\n")
        await writer.drain()
    writer.close()


async def converse(port, end, failures):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = 0
    while going(end):
        body = f"turn {turn} ".encode() * (SIZE // 10)
        writer.write(b"%d\n" % len(body) + body)
        await writer.drain()
        if (await reader.readline()).decode().strip() != hashlib.sha256(body).hexdigest():
            failures.append(f"another hash in turn {turn}")
        turn += 1
        await asyncio.sleep(0.002)
    writer.close()


async def spawn(end, failures):
    turn = 0
    while going(end):
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec("tr", "a-z", "A-Z", stdin=pipe, stdout=pipe)
        found, _ = await child.communicate(f"turn {turn}".encode())
        if found != f"TURN {turn}".encode() or child.returncode != 0:
            failures.append(f"turn {turn}: found {found!r}, {child.returncode}")
        turn += 1


async def pooled(pool, end, failures):
    turn = 0
    while going(end):
        numbers = range(turn, turn + 4)
        if (found := await asyncio.to_thread(pool.map, compute, numbers)) != list(map(compute, numbers)):
            failures.append(f"turn {turn}: found {found}")
        turn += 1


async def tick(end, failures):
    while going(end):
        began = time.monotonic()
        await asyncio.sleep(0.05)
        # A loop wakes by as much early as its clock is coarse.
        if time.monotonic() - began < 0.049:
            failures.append(f"a timer ended after {time.monotonic() - began} s")


def queued(asked, answers, end, failures):
    """Asks another process by a queue, and gets its answers by another."""
    turn = 0
    while going(end):
        text = f"turn {turn}"
        asked.put(text)
        if (found := answers.get()) != text[::-1]:
            failures.append(f"expected {text[::-1]!r}, found {found!r}")
        turn += 1
    asked.put(None)


async def loops(pool, queues, end, failures):
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.gather(
        converse(port, end, failures), converse(port, end, failures), spawn(end, failures), pooled(pool, end, failures),
        tick(end, failures), asyncio.to_thread(queued, *queues, end, failures),
    )
    server.close()


def main(end):
    failures = []
    memory = shared_memory.SharedMemory(create=True, size=8)
    lock, counted = multiprocessing.Lock(), multiprocessing.Queue()
    queues = multiprocessing.Queue(), multiprocessing.SimpleQueue()
    # All of them before there are threads: a process that is forked off has only the thread that forked.
    children = [multiprocessing.Process(target=count, args=(memory.name, lock, end, counted)) for _ in range(COUNTERS)]
    children.append(multiprocessing.Process(target=reverse, args=queues))
    for child in children:
        child.start()
    with multiprocessing.Pool(2) as pool:
        print("started", flush=True)
        asyncio.run(loops(pool, queues, end, failures))
    turns = sum(counted.get() for _ in range(COUNTERS))
    for child in children:
        child.join()
    found = int.from_bytes(memory.buf[:8], "little")
    if found != turns or any(child.exitcode for child in children):
        failures.append(f"counted {found} of {turns}; ended with {[child.exitcode for child in children]}")
    memory.close()
    memory.unlink()
    for failure in failures[:10]:
        print(f"FAIL: {failure}", file=sys.stderr)
    print("processes: wrong" if failures else "processes: right", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main(sys.argv[1])
