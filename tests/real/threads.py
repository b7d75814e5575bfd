"""Threads, subprocesses, pipes, a lock, a queue and time, until a file is there; every sum is checked at the end.

usage: threads.py FILE
"""
import os
import queue
import subprocess
import sys
import threading
import time

# Seconds that it works at least.
LEAST = 1

end = sys.argv[1]
start = time.monotonic()
lock = threading.Lock()
numbers: queue.Queue = queue.Queue(maxsize=64)
produced = consumed = spawned = 0
failures = []


def going():
    return time.monotonic() - start < LEAST or not os.path.exists(end)


def produce():
    global produced
    while going():
        numbers.put(produced)
        produced += 1
        time.sleep(0.001)
    numbers.put(None)


def consume():
    global consumed
    while (number := numbers.get()) is not None:
        if number != consumed:
            failures.append(f"expected {consumed}, found {number}")
        consumed += 1


def spawn():
    global spawned
    while going():
        text = f"turn {spawned}"
        echoed = subprocess.run(["cat"], input=text, capture_output=True, text=True, check=True).stdout
        if echoed != text:
            failures.append(f"expected {text!r}, found {echoed!r}")
        with lock:
            spawned += 1


def converse():
    child = subprocess.Popen(["sed", "-u", "s/^/</"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    turn = 0
    while going():
        child.stdin.write(f"{turn}\n")
        child.stdin.flush()
        answer = child.stdout.readline()
        if answer != f"<{turn}\n":
            failures.append(f"turn {turn}: found {answer!r}")
        turn += 1
        time.sleep(0.002)
    child.stdin.close()
    if child.wait() != 0:
        failures.append(f"sed ended with {child.returncode}")


threads = [threading.Thread(target=body) for body in (produce, consume, spawn, spawn, converse)]
print("started", flush=True)
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if produced != consumed or spawned == 0:
    failures.append(f"produced {produced}, consumed {consumed}, spawned {spawned}")
for failure in failures[:10]:
    print(f"FAIL: {failure}", file=sys.stderr)
print("python: right" if not failures else "python: wrong", flush=True)
sys.exit(1 if failures else 0)
