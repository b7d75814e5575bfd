"""Two processes write to one SQLite database: one is inside of a transaction, and the other one must not be let in.

SQLite excludes writers by record locks (fcntl). Each process handles a signal that a timer sends it, on its alternate signal
stack if it has one, as all handlers of CPython do. usage: sqlitewriters.py END
"""

import os
import signal
import sqlite3
import sys
import time

DATABASE = "two-writers.db"
handled = 0
inside = os.pipe()


def on_alarm(_signal, _frame):
    global handled
    handled += 1


def begin():
    """A connection inside of a transaction that writes, with the counter as it is."""
    database = sqlite3.connect(DATABASE, timeout=0, isolation_level=None)
    try:
        database.execute("begin immediate")
    except sqlite3.OperationalError as error:
        database.close()
        if "locked" not in str(error):
            raise
        return None, None
    return database, database.execute("select value from counter").fetchone()[0]


def commit(database, value):
    database.execute("update counter set value = ?", (value,))
    database.execute("commit")
    database.close()


def holder(end):
    database, value = begin()
    os.write(inside[1], b"!")
    database.execute("update counter set value = ?", (value + 1,))
    print("started", flush=True)
    while not os.path.exists(end):
        time.sleep(0.01)
    commit(database, value + 1)


def other(end):
    while True:
        database, value = begin()
        if database is not None:
            if not os.path.exists(end):
                sys.exit("sqlite: let in while another process was inside of a transaction")
            return commit(database, value + 1)
        time.sleep(0.01)


def child(work, end):
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    work(end)
    if not handled:
        sys.exit("sqlite: no signal was handled")
    os._exit(0)


def main():
    end = sys.argv[1]
    database = sqlite3.connect(DATABASE)
    database.execute("create table counter (value integer)")
    database.execute("insert into counter values (0)")
    database.commit()
    database.close()
    first = child(holder, end)
    # The holder must be inside before the other one knocks.
    os.read(inside[0], 1)
    children = [first, child(other, end)]
    if any(os.waitpid(pid, 0)[1] != 0 for pid in children):
        sys.exit("sqlite: a process failed")
    value = sqlite3.connect(DATABASE).execute("select value from counter").fetchone()[0]
    print("sqlite: right" if value == 2 else f"sqlite: {value} instead of 2", flush=True)


main()
