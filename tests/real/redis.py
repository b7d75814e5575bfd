"""redis-server with one client connected throughout: each increment must give the next number.

usage: redis.py FILE: works until it is there
"""
import os
import socket
import subprocess
import sys
import tempfile
import time

# Seconds that it works at least.
LEAST = 1

end = sys.argv[1]
start = time.monotonic()
folder = tempfile.mkdtemp(prefix="ckptd-redis-")
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
server = subprocess.Popen(
    ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--dir", folder, "--save", "", "--appendonly", "no"],
    stdout=subprocess.DEVNULL,
)


def connect():
    for _ in range(500):
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.01)
    sys.exit("FAIL: redis-server never listened")


client = connect()
answers = client.makefile("rb")


def ask(*words):
    request = b"*%d\r\n" % len(words)
    for word in words:
        word = word.encode()
        request += b"$%d\r\n%s\r\n" % (len(word), word)
    client.sendall(request)
    return answers.readline().strip()


def expect(found, expected):
    if found != expected:
        server.kill()
        sys.exit(f"FAIL: expected {expected!r}, found {found!r}")


expect(ask("SET", "kept", "x" * 100000), b"+OK")
print("started", flush=True)
count = 0
while time.monotonic() - start < LEAST or not os.path.exists(end):
    count += 1
    expect(ask("INCR", "counter"), b":%d" % count)
    if count % 100 == 0:
        time.sleep(0.005)
expect(ask("STRLEN", "kept"), b":100000")
# A new connection to the same listener, too.
client = connect()
answers = client.makefile("rb")
expect(ask("INCRBY", "counter", "0"), b":%d" % count)
client.sendall(b"SHUTDOWN NOSAVE\r\n")
expect(server.wait(), 0)
os.rmdir(folder)
print("redis: right", flush=True)
