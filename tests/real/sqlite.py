"""A database with a rollback journal outside of $TMPDIR: what it holds is always what this program remembers.

usage: sqlite.py FILE: works until it is there
"""
import os
import shutil
import sqlite3
import sys
import tempfile
import time

# Seconds that it works at least.
LEAST = 1

end = sys.argv[1]
start = time.monotonic()
folder = tempfile.mkdtemp(prefix="ckptd-sqlite-", dir="/var/tmp")
path = os.path.join(folder, "rows.db")
base = sqlite3.connect(path, isolation_level=None)
base.execute("PRAGMA journal_mode = DELETE")
# The cache is small, so that transactions write to the file before they end.
base.execute("PRAGMA cache_size = 4")
base.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT)")
failures = []
rows = turns = 0
print("started", flush=True)
while (time.monotonic() - start < LEAST or not os.path.exists(end)) and not failures:
    turns += 1
    base.execute("BEGIN IMMEDIATE")
    for _ in range(40):
        base.execute("INSERT INTO rows VALUES (?, ?)", (rows, f"{rows} of turn {turns} " * 20))
        rows += 1
    base.execute("UPDATE rows SET text = text || '.' WHERE number % 7 = ?", (turns % 7,))
    time.sleep(0.02)
    if turns % 5 == 0:
        base.execute("ROLLBACK")
        rows -= 40
    else:
        base.execute("COMMIT")
    if turns % 10 == 0:
        base.execute("DELETE FROM rows")
        rows = 0
    found = base.execute("SELECT count(*) FROM rows").fetchone()[0]
    if found != rows:
        failures.append(f"turn {turns}: expected {rows} rows, found {found}")
    if os.stat(path).st_nlink != 1:
        failures.append("the database has lost its name")
check = base.execute("PRAGMA integrity_check").fetchone()[0]
if check != "ok":
    failures.append(check)
base.close()
shutil.rmtree(folder)
for failure in failures[:10]:
    print(f"FAIL: {failure}", file=sys.stderr)
print("sqlite: right" if not failures else "sqlite: wrong", flush=True)
sys.exit(1 if failures else 0)
