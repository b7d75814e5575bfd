"""nginx with several workers under load: every answer has the right bytes, over connections that last and new ones.

usage: nginx.py FILE: works until it is there
"""
import hashlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

# Seconds that it works at least.
LEAST = 1
CLIENTS = 6
# More than fits into a socket's buffers.
SIZE = 3_000_000

end = sys.argv[1]
start = time.monotonic()
folder = tempfile.mkdtemp(prefix="ckptd-nginx-")
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
content = os.urandom(SIZE)
right = hashlib.sha256(content).digest()
with open(os.path.join(folder, "file"), "wb") as file:
    file.write(content)
temporary = "".join(
    f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)
with open(os.path.join(folder, "conf"), "w") as conf:
    conf.write(f"""
daemon off; worker_processes 3; error_log {folder}/error.log; pid {folder}/pid;
{"user root;" if os.geteuid() == 0 else ""}
events {{ worker_connections 256; }}
http {{
    access_log off; sendfile on; {temporary}
    server {{ listen 127.0.0.1:{port} reuseport; root {folder}; }}
}}
""")
server = subprocess.Popen([shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin"), "-c", f"{folder}/conf"],
                          stderr=subprocess.DEVNULL)
for _ in range(500):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        break
    except ConnectionRefusedError:
        time.sleep(0.01)
failures = []
answers = 0


def going():
    return (time.monotonic() - start < LEAST or not os.path.exists(end)) and not failures


def load(lasts):
    global answers
    client = http.client.HTTPConnection("127.0.0.1", port)
    while going():
        try:
            client.request("GET", "/file")
            if hashlib.sha256(client.getresponse().read()).digest() != right:
                failures.append("wrong bytes")
        except (OSError, http.client.HTTPException) as error:
            failures.append(repr(error))
        if not lasts:
            client.close()
        answers += 1
        time.sleep(0.005)


clients = [threading.Thread(target=load, args=(number % 2 == 0,)) for number in range(CLIENTS)]
for client in clients:
    client.start()
print("started", flush=True)
for client in clients:
    client.join()
# Workers end by themselves.
server.send_signal(signal.SIGQUIT)
if server.wait() != 0 or answers < CLIENTS:
    failures.append(f"nginx ended with {server.returncode} after {answers} answers")
shutil.rmtree(folder)
for failure in failures[:10]:
    print(f"FAIL: {failure}", file=sys.stderr)
print("nginx: wrong" if failures else "nginx: right", flush=True)
