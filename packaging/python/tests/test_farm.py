"""The executor with a real ckptd: `CKPTD=... python -m unittest discover packaging/python/tests`."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
from concurrent.futures import FIRST_COMPLETED, CancelledError, as_completed, wait

from ckptd_farm import Farm, FarmError, TaskFailed
from ckptd_farm.command import executable

#: How long anything may take, in seconds.
LIMIT = 120


def until(what, condition):
    """Waits for a condition."""
    end = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"never: {what}")
        time.sleep(0.02)


def note(path):
    """One more byte of a file: it tells how often something was done."""
    with open(path, "a") as file:
        file.write(".")


def count(path):
    """How often that was."""
    return path.stat().st_size if path.exists() else 0


def wait_for(path):
    """Until somebody makes the file."""
    while not os.path.exists(path):
        time.sleep(0.02)


def count_on(begun, out, last):
    """Takes `last` twentieths of a second, and tells whether it has seen all of them, in memory."""
    note(begun)
    seen = []
    for number in range(last):
        seen.append(number)
        with open(out, "w") as file:
            file.write(str(number))
        time.sleep(0.05)
    return sum(seen)


def how_far(out):
    """How far that is."""
    return int(out.read_text() or 0) if out.exists() else 0


class Unsendable(Exception):
    """Its arguments are not those of its constructor."""

    def __init__(self, one, two):
        super().__init__(one)


class Cases(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ckptd-t-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        os.environ["CKPTD_DIR"] = str(self.folder / "state")

    def ckptd(self, *words, status=0):
        ended = subprocess.run([executable(), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertEqual(ended.returncode, status, ended)
        return ended.stdout

    def status(self, name):
        return json.loads(self.ckptd("farm", "status", name, "--json"))

    def guards_and_workers(self, name):
        """Processes of that farm which are ckptd's, by their words."""
        folder = str(self.folder / "state" / "farms" / name)
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if entry.name.isdigit() and words[1:2] == ["farm"] and folder in words:
                    found.append((words[2], int(entry.name)))
        return found

    def kept(self, name):
        """How many tasks of that farm have a checkpoint."""
        jobs = self.folder / "state" / "farms" / name / "jobs"
        return len({path.parents[2] for path in jobs.glob("*/checkpoints/*/COMMITTED")})

    def test_many_small_calls(self):
        with Farm(jobs=4) as farm:
            futures = [farm.submit(pow, number, 2) for number in range(40)]
            squares = list(farm.map(lambda number: number * number, range(40)))
            self.assertEqual([future.result() for future in futures], squares)
            self.assertEqual(squares, [number * number for number in range(40)])
            folder = farm.results.parent
            self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
            self.assertEqual((folder / "python").stat().st_mode & 0o777, 0o700)
            # Nobody asks for these calls again.
            self.assertEqual([path.name for path in (folder / "python").iterdir()], ["sessions"])
            name = farm.name
        self.assertFalse(folder.exists())
        self.assertEqual(self.guards_and_workers(name), [])
        with self.assertRaisesRegex(RuntimeError, "after shutdown"):
            farm.submit(pow, 2, 2)

    def test_map_in_chunks(self):
        with Farm("f", jobs=2) as farm:
            self.assertEqual(list(farm.map(pow, range(10), [2] * 10, chunksize=4)), [n * n for n in range(10)])
            self.assertEqual(self.status("f")["right"], 3)
            late = farm.map(wait_for, [str(self.folder / "end")], timeout=0.2)
            # The one of concurrent.futures, which is another one before Python 3.11.
            with self.assertRaises(Exception) as raised:
                next(late)
            self.assertEqual(type(raised.exception).__name__, "TimeoutError")
            note(self.folder / "end")

    def test_exceptions(self):
        def fails(kind):
            if kind == "value":
                raise ValueError("of my own", 7)
            if kind == "unsendable":
                raise Unsendable(1, 2)
            if kind == "exit":
                sys.exit(3)
            return threading.Lock()

        with Farm(jobs=4) as farm:
            kinds = ("value", "unsendable", "exit", "lock")
            value, unsendable, leaves, lock = (farm.submit(fails, kind) for kind in kinds)
            error = value.exception()
            self.assertIs(type(error), ValueError)
            self.assertEqual(error.args, ("of my own", 7))
            self.assertIn("in fails", str(error.__cause__))
            self.assertIn("ValueError: ('of my own', 7)", value.stderr.read_text())
            self.assertRegex(str(unsendable.exception()), "Unsendable: 1")
            self.assertIsInstance(leaves.exception(), SystemExit)
            self.assertIsInstance(lock.exception(), TypeError)

    def test_tasks_that_end_without_a_result(self):
        with Farm(jobs=3, timeout=1) as farm:
            killed = farm.submit(lambda: os.kill(os.getpid(), signal.SIGKILL))
            left = farm.submit(lambda: (os.write(2, b"to err"), os._exit(3)))
            late = farm.submit(time.sleep, 1000)
            error = killed.exception()
            self.assertIsInstance(error, TaskFailed)
            self.assertEqual((error.outcome, error.signal, error.status), ("signalled", 9, 137))
            error = left.exception()
            self.assertEqual((error.outcome, error.signal, error.status), ("exited", None, 3))
            self.assertEqual(error.stderr, "to err")
            self.assertEqual((late.exception().outcome, late.exception().status), ("timed-out", 124))

    def test_retries(self):
        tries = self.folder / "tries"

        def third(path):
            note(path)
            if os.stat(path).st_size < 3:
                raise OSError("not yet")
            return "third"

        with Farm(retries=3) as farm:
            self.assertEqual(farm.submit(third, str(tries)).result(), "third")
        self.assertEqual(count(tries), 3)

    def test_cancel(self):
        end, second = self.folder / "end", self.folder / "second"
        with Farm("f", jobs=1) as farm:
            runs = farm.submit(wait_for, str(end))
            waits = [farm.submit(note, str(second)) for _ in range(3)]
            until("the first one runs", runs.running)
            self.assertFalse(runs.cancel())
            self.assertFalse(waits[0].running())
            self.assertTrue(waits[0].cancel() and waits[0].cancel() and waits[0].cancelled())
            with self.assertRaises(CancelledError):
                waits[0].result()
            # Who waits for it hears of it.
            self.assertEqual(next(as_completed([runs, waits[0]], timeout=LIMIT)), waits[0])
            self.assertTrue(waits[1].kill() and waits[1].cancelled())
            self.assertTrue(runs.kill())
            self.assertEqual(runs.exception().outcome, "cancelled")
            self.assertFalse(runs.kill() or runs.cancel() or runs.cancelled())
            waits[2].result()
            self.assertEqual(count(second), 1)
            again = farm.submit(wait_for, str(end))
            rest = [farm.submit(note, str(second)) for _ in range(20)]
            until("it runs", again.running)
            threading.Timer(0.5, note, [str(end)]).start()
            farm.shutdown(cancel_futures=True)
            self.assertIsNone(again.result())
            self.assertTrue(all(future.cancelled() for future in rest))
        self.assertEqual(count(second), 1)

    def test_as_completed(self):
        gates = [self.folder / f"gate{number}" for number in range(4)]
        with Farm(jobs=4) as farm:
            futures = {farm.submit(wait_for, str(gate)): gate for gate in gates}
            ended = []
            gates[2].touch()
            for future in as_completed(futures, timeout=LIMIT):
                ended.append(futures[future])
                if len(ended) < 4:
                    next(gate for gate in reversed(gates) if gate not in ended).touch()
            self.assertEqual(ended, [gates[2], gates[3], gates[1], gates[0]])
            first = farm.submit(wait_for, str(self.folder / "never"))
            second = farm.submit(pow, 2, 3)
            done, left = wait([first, second], timeout=LIMIT, return_when=FIRST_COMPLETED)
            self.assertEqual((done, left), ({second}, {first}))
            first.kill()

    def test_threads(self):
        results = []
        with Farm(jobs=4) as farm:
            work = lambda start: results.extend(farm.map(abs, range(-start, 0)))
            threads = [threading.Thread(target=work, args=(8,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(sorted(results), sorted(list(range(1, 9)) * 4))

    def test_killed_farm(self):
        """What has ended is not run again, what has a checkpoint goes on from there, and nobody has to do anything."""
        with Farm("f", jobs=4, checkpoint=0.5) as farm:
            begun = [self.folder / f"begun{number}" for number in range(2)]
            out = [self.folder / f"out{number}" for number in range(2)]
            long = [farm.submit(count_on, str(begun[number]), str(out[number]), 200) for number in range(2)]
            short = [farm.submit(note, str(self.folder / f"short{number}")) for number in range(10)]
            wait(short)
            until("both have checkpoints", lambda: self.kept("f") >= 2)
            for round, which in enumerate(("work", "all")):
                far = how_far(out[0])
                until("it goes on", lambda: how_far(out[0]) > far + 5)
                for what, pid in self.guards_and_workers("f"):
                    if which in (what, "all"):
                        os.kill(pid, signal.SIGKILL)
                until("it is begun again", lambda: any(what == "work" for what, _ in self.guards_and_workers("f")))
                later = farm.submit(note, str(self.folder / f"later{round}"))
                later.result(LIMIT)
                self.assertEqual(count(self.folder / f"later{round}"), 1)
            self.assertEqual([future.result(LIMIT) for future in long], [sum(range(200))] * 2)
            self.assertEqual([count(path) for path in begun], [1, 1])
            self.assertEqual([count(self.folder / f"short{number}") for number in range(10)], [1] * 10)
            self.assertTrue(all(future.exception() is None for future in short))

    def test_killed_wait(self):
        """The process by which ends are heard of is killed: another one takes its place."""
        end = self.folder / "end"
        with Farm(jobs=2) as farm:
            futures = [farm.submit(wait_for, str(end)) for _ in range(4)]
            for _ in range(2):
                before = farm._ends._process
                before.kill()
                until("there is another one", lambda: farm._ends._process not in (before, None))
            note(end)
            self.assertEqual([future.result(LIMIT) for future in futures], [None] * 4)

    def test_stopped_farm(self):
        """It stays so until somebody starts it, and goes on then."""
        begun, out = self.folder / "begun", self.folder / "out"
        with Farm("f", jobs=1) as farm:
            long = farm.submit(count_on, str(begun), str(out), 60)
            until("it is under way", lambda: how_far(out) > 10)
            with self.assertLogs("ckptd_farm", "WARNING") as said:
                self.ckptd("farm", "stop", "f")
                far = how_far(out)
                until("it is told", lambda: said.output)
                # It would have been begun by then.
                time.sleep(1)
            self.assertIn("'ckptd farm start f' goes on", said.output[0])
            self.assertEqual(self.guards_and_workers("f"), [])
            self.assertFalse(long.done())
            self.assertEqual(how_far(out), far)
            self.ckptd("farm", "start", "f")
            self.assertEqual(long.result(LIMIT), sum(range(60)))
            self.assertEqual(count(begun), 1)
            self.assertTrue(self.status("f")["tasks"][0]["restored"])

    def test_task_that_cannot_be_brought_back(self):
        """It is told of, and others are not affected; a session that goes on with it waits for it again."""
        begun, out = self.folder / "begun", self.folder / "out"
        with Farm("f", jobs=2, checkpoint=0.5) as farm:
            long = farm.submit(count_on, str(begun), str(out), 1000)
            folder = self.folder / "state" / "farms" / "f"
            jobs = folder / "jobs"
            until("it has two checkpoints", lambda: [*jobs.glob("*/checkpoints/[2-9]*/COMMITTED")])
            # Its task, too, and what takes checkpoints of it: there are no more.
            for environment in pathlib.Path("/proc").glob("[0-9]*/environ"):
                with contextlib.suppress(OSError):
                    if f"CKPTD_FARM={folder}".encode() in environment.read_bytes().split(b"\0"):
                        os.kill(int(environment.parent.name), signal.SIGKILL)
            for _, pid in self.guards_and_workers("f"):
                os.kill(pid, signal.SIGKILL)
            for graph in jobs.glob("*/checkpoints/*/graph.json"):
                graph.write_text("{}")
            short = farm.submit(pow, 2, 3)
            self.assertEqual(short.result(LIMIT), 8)
            error = long.exception(LIMIT)
            self.assertEqual((error.outcome, error.status), ("stuck", 125))
            self.assertRegex(str(error), "task 1 can't be brought back from its checkpoint: restart t1.1")
        self.ckptd("farm", "stop", "f")
        self.ckptd("farm", "cancel", "--farm", "f", "1")

    def test_resumed_session(self):
        """A script that is killed is run again: what has ended is handed out, what runs is waited for."""
        script = self.folder / "script.py"
        script.write_text(
            textwrap.dedent(
                """
                import dataclasses, os, sys, time
                from ckptd_farm import Farm

                @dataclasses.dataclass
                class Wish:
                    number: int
                    names: tuple = ("a", "b")

                def note(path):
                    with open(path, "a") as file:
                        file.write(".")

                class Late(LookupError):
                    pass

                def call(wish, scale=1):
                    # In each process, such a set has another order.
                    assert wish.names[0] in {"a", "b", "c", "d", "e"}
                    note(f"begun{wish.number}")
                    if wish.number == 3:
                        while not os.path.exists("end"):
                            time.sleep(0.02)
                    if wish.number == 2 and not os.path.exists("end"):
                        raise Late("not yet")
                    if wish.number == 4:
                        return wish
                    return wish.number * scale

                with Farm("s", jobs=2, checkpoint=20, idle=90, resume=True, retry_failed=len(sys.argv) > 1) as farm:
                    futures = [farm.submit(call, Wish(number), scale=10) for number in range(5)]
                    note("submitted")
                    ended = [future.exception() or future.result() for future in futures]
                    assert isinstance(ended[2], Late) or ended[2] == 20, type(ended[2])
                    ended[4] = ended[4] == Wish(4)
                    print(ended)
                """
            )
        )
        words = [sys.executable, str(script)]
        first = subprocess.Popen(words, cwd=self.folder, stdout=subprocess.PIPE)
        until("all others have ended", lambda: count(self.folder / "begun4") and count(self.folder / "submitted"))
        until("they have", lambda: self.status("s")["right"] == 3)
        first.kill()
        first.communicate()
        # No line of its own, but the same code.
        script.write_text("# Another line.\n" + script.read_text())
        note(self.folder / "end")
        again = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(again.stdout, "[0, 10, Late('not yet'), 30, True]\n", again.stderr)
        self.assertEqual([count(self.folder / f"begun{number}") for number in range(5)], [1] * 5)
        again = subprocess.run([*words, "retry"], cwd=self.folder, capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(again.stdout, "[0, 10, 20, 30, True]\n", again.stderr)
        self.assertEqual([count(self.folder / f"begun{number}") for number in range(5)], [1, 1, 2, 1, 1])

    def test_refusals(self):
        with self.assertRaisesRegex(ValueError, "needs the name"):
            Farm(resume=True)
        with self.assertRaisesRegex(FarmError, "invalid value 'x y'|name"):
            Farm("x y")
        with Farm("f") as farm, self.assertRaises(Exception):
            farm.submit(pow, threading.Lock())
        self.assertEqual(self.status("f")["tasks"], [])
        with Farm("f"), self.assertRaisesRegex(FarmError, "another session"):
            Farm("f", resume=True)
        with self.assertRaisesRegex(FarmError, "no/such"):
            Farm("f", ckptd="/no/such/ckptd")

    def test_removed_farm(self):
        """A farm that somebody has removed: who waits hears of it."""
        farm = Farm("f", jobs=1)
        long = farm.submit(time.sleep, 1000)
        until("it runs", long.running)
        self.ckptd("farm", "stop", "--now", "f")
        self.ckptd("farm", "rm", "f")
        self.assertIsInstance(long.exception(LIMIT), FarmError)
        farm.shutdown()

    def test_joblib(self):
        try:
            import joblib
        except ImportError:
            self.skipTest("there is no joblib here")
        import ckptd_farm.joblib

        ckptd_farm.joblib.register()
        with joblib.parallel_config(backend="ckptd", n_jobs=4, name="j"):
            roots = joblib.Parallel()(joblib.delayed(pow)(number, 2) for number in range(50))
            self.assertEqual(roots, [number * number for number in range(50)])
            with self.assertRaises(ZeroDivisionError):
                joblib.Parallel()(joblib.delayed(divmod)(1, number) for number in (1, 0))
        self.assertTrue(self.status("j")["tasks"])


def load_tests(_loader, tests, _pattern):
    """All of them, or those of a part: with `CKPTD_TESTS_PART=1/4` each fourth, from the second one on."""
    part, parts = map(int, os.environ.get("CKPTD_TESTS_PART", "0/1").split("/"))
    cases = [case for suite in tests for case in suite]
    return unittest.TestSuite(cases[part::parts])


if __name__ == "__main__":
    unittest.main()
