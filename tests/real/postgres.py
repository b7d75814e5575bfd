"""A PostgreSQL server and its client: what the tables hold is always what the client remembers.

usage: postgres.py FOLDER FILE: works until the file is there

The server's files are in FOLDER, which the caller names as a session folder. Root's server runs as another user, since
PostgreSQL refuses root.
"""
import glob
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time

# Seconds that it works at least.
LEAST = 1

folder, end = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
start = time.monotonic()
programs = (glob.glob("/usr/lib/postgresql/*/bin") or [os.path.dirname(shutil.which("postgres") or "")])[-1]
data, sockets = os.path.join(folder, "data"), os.path.join(folder, "sockets")
# The longest name that the address of a Unix socket can have.
SHORT = 90
user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
as_user = []
os.makedirs(folder, exist_ok=True)
if os.geteuid() == 0:
    as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    os.chown(folder, user.pw_uid, user.pw_gid)
if len(sockets) > SHORT:
    sys.exit(f"{sockets} is too long for the address of a socket")


def program(name):
    return as_user + [os.path.join(programs, name)]


def run(name, *arguments):
    subprocess.run([*program(name), *arguments], check=True, stdout=subprocess.DEVNULL, cwd=folder)


run("initdb", "-D", data, "-A", "trust", "-U", "writer", "--no-sync", "--locale=C", "-E", "UTF8")
subprocess.run([*as_user, "mkdir", sockets], check=True)
log = open("postgres.log", "w")
settings = {
    "listen_addresses": "",
    "unix_socket_directories": sockets,
    "shared_buffers": "1MB",
    "max_connections": "8",
    "checkpoint_timeout": "30s",
    "autovacuum_naptime": "1s",
    "fsync": "off",
}
options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
server = subprocess.Popen(
    [*program("postgres"), "-D", data, *options], stdout=log, stderr=log, cwd=folder
)


class Client:
    """psql between two pipes: what it is told goes in, a line with the answer comes out."""

    def __init__(self):
        self.psql = subprocess.Popen(
            [*program("psql"), "-h", sockets, "-U", "writer", "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder,
        )

    def tell(self, statement):
        self.psql.stdin.write(statement + ";\n")
        self.psql.stdin.flush()

    def ask(self, question):
        self.tell(question)
        return self.psql.stdout.readline().strip()

    def end(self):
        self.psql.stdin.close()
        return self.psql.wait()


while subprocess.run([*program("pg_isready"), "-q", "-h", sockets, "-U", "writer", "-d", "postgres"], cwd=folder).returncode != 0:
    if server.poll() is not None:
        sys.exit("the server has not started")
    time.sleep(0.05)
writer, reader = Client(), Client()
writer.tell("CREATE TABLE rows (number int PRIMARY KEY, text text)")
failures = []
rows = turns = 0
print("started", flush=True)
while (time.monotonic() - start < LEAST or not os.path.exists(end)) and not failures:
    turns += 1
    writer.tell("BEGIN")
    writer.tell(
        f"INSERT INTO rows SELECT n, repeat(n || ' of turn {turns} ', 40)"
        f" FROM generate_series({rows}, {rows + 199}) AS n"
    )
    writer.tell(f"UPDATE rows SET text = text || '.' WHERE number % 7 = {turns % 7}")
    if turns % 5 == 0:
        writer.tell("ROLLBACK")
    else:
        writer.tell("COMMIT")
        rows += 200
    if turns % 7 == 0:
        # Files of tables come and go, and the server writes what it has in memory.
        writer.tell(f"CREATE TABLE turn{turns} AS SELECT * FROM rows; DROP TABLE IF EXISTS turn{turns - 7}")
        writer.tell("CHECKPOINT")
    if turns % 12 == 0:
        writer.tell("TRUNCATE rows")
        rows = 0
    done = writer.ask("SELECT 'done'")
    found = reader.ask("SELECT count(*) FROM rows")
    if (done, found) != ("done", str(rows)):
        failures.append(f"turn {turns}: expected {rows} rows, found {found!r} ({done!r})")
# Every row and every entry of the index.
if not failures:
    whole = reader.ask("SET enable_seqscan = off; SELECT count(number) FROM rows WHERE number >= 0")
    if whole != str(rows):
        failures.append(f"the index has {whole!r} of {rows} rows")
for client in (writer, reader):
    if client.end() != 0:
        failures.append("psql has failed")
# Waits for what is left of the clients.
server.send_signal(signal.SIGTERM)
if server.wait() != 0:
    failures.append(f"the server ended with {server.returncode}")
log.close()
with open("postgres.log") as said:
    bad = ("ERROR:", "FATAL:", "PANIC:")
    # Autovacuum makes room for whoever wants its table.
    said = [line.strip() for line in said if "autovacuum" not in line]
    failures += [line for line in said if any(word in line for word in bad)]
for failure in failures[:10]:
    print(f"FAIL: {failure}", file=sys.stderr)
print("postgres: right" if not failures else "postgres: wrong", flush=True)
sys.exit(1 if failures else 0)
