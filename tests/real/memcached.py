"""memcached with several threads and two clients: what was set last is what is got.

usage: memcached.py FILE: works until it is there
"""
import os
import socket
import subprocess
import sys
import time

# Seconds that it works at least.
LEAST = 1
KEYS = 40

end = sys.argv[1]
start = time.monotonic()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
as_root = ["-u", "root"] if os.geteuid() == 0 else []
server = subprocess.Popen(["memcached", "-l", "127.0.0.1", "-p", str(port), "-t", "4", "-m", "16", *as_root])


def connect():
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", port)).makefile("rwb")
        except ConnectionRefusedError:
            time.sleep(0.01)
    sys.exit("FAIL: memcached never listened")


def expect(found, expected):
    if found != expected:
        server.kill()
        sys.exit(f"FAIL: expected {expected!r}, found {found!r}")


writer, reader = connect(), connect()
print("started", flush=True)
turn = 0
while time.monotonic() - start < LEAST or not os.path.exists(end):
    turn += 1
    for key in range(KEYS):
        value = b"%d of turn %d " % (key, turn) * 50
        writer.write(b"set key%d 0 0 %d\r\n%s\r\n" % (key, len(value), value))
        writer.flush()
        expect(writer.readline(), b"STORED\r\n")
        reader.write(b"get key%d\r\n" % key)
        reader.flush()
        expect(reader.readline(), b"VALUE key%d 0 %d\r\n" % (key, len(value)))
        expect(reader.read(len(value) + 2), value + b"\r\n")
        expect(reader.readline(), b"END\r\n")
    time.sleep(0.005)
server.terminate()
expect(server.wait(), 0)
print("memcached: right", flush=True)
