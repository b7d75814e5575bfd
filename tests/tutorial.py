"""Does what docs/src/tutorial.md says, on the machines that tests/tutorial makes: NAME=PID each, the first process of one.

Each block of the page has its place in STEPS, in the page's order: a block that is new, or that has gone, is a failure. Of what the
page shows as output, each line has to come with the same words, whatever its numbers and times are.
"""
import itertools
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import time

LIMIT = 120
page = (pathlib.Path(__file__).resolve().parent.parent / "docs/src/tutorial.md").read_text()
first = dict(one.split("=") for one in sys.argv[1:])


def fail(text):
    sys.exit(f"FAIL: {text}")


def blocks():
    """The page's blocks: lines that are indented, up to an empty one; and programs between fences."""
    found = []
    for piece in re.findall(r"```c\n.*?```|(?:^    [^\n]*\n)+", page, flags=re.S | re.M):
        if piece.startswith("```c"):
            found.append(piece.removeprefix("```c\n").removesuffix("```"))
        # Of a program between fences nothing is a block of its own: the pattern takes it whole.
        else:
            found.append("".join(line[4:] + "\n" for line in piece.splitlines()))
    return found


def words(name, script):
    """What does that on a machine, in alice's home."""
    there = ["nsenter", "--target", first[name], "--net", "--uts", "--ipc", "--pid", "--mount", "--root", "--wd"]
    who = ["env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/home/alice", "USER=alice", "TERM=xterm",
           "setpriv", "--reuid", "alice", "--regid", "alice", "--clear-groups", "--"]
    return [*there, *who, "bash", "-c", f"cd; {script}"]


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, name, command):
        self.command, self.text = command, ""
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.execvp("nsenter", words(name, command))

    def read(self, limit):
        """What came within that time; False: it has ended."""
        if not select.select([self.end], [], [], limit)[0]:
            return True
        try:
            came = os.read(self.end, 65536)
        except OSError:
            return False
        self.text += came.decode(errors="replace").replace("\r\n", "\n")
        return bool(came)

    def shows(self, pattern):
        """Waits until it has shown that."""
        until = time.monotonic() + LIMIT
        while not re.search(pattern, plain(self.text)):
            if time.monotonic() > until or not self.read(0.2):
                fail(f"'{self.command}' does not show {pattern!r}:\n{self.text}")

    def interrupt(self):
        os.write(self.end, b"\x03")

    def ends(self):
        """Its exit status."""
        until = time.monotonic() + LIMIT
        while self.read(0.2):
            if time.monotonic() > until:
                fail(f"'{self.command}' does not end:\n{self.text}")
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def plain(text):
    """Without colours; lines that are broken are one."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x07\x1b]*(\x07|\x1b\\)", "", text)


def done(name, command, status=0):
    """Does a command and gives what it says."""
    said = subprocess.run(words(name, command), capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
    if said.returncode != status:
        fail(f"'{command}' ends with {said.returncode}: {said.stdout}{said.stderr}")
    return said.stdout


# What takes longer on a busy machine is told in another one.
UNITS = ["us", "ms", "s", "min", "B", "KiB", "MiB", "GiB"]


def like(line):
    """A line of the page as a pattern: numbers and times may be others, and so may the room. What the page cuts by ... goes on."""
    parts = []
    for before, word in itertools.pairwise(["", *line.split()]):
        if word == "...":
            break
        if re.search(r"\d", before) and word in UNITS:
            parts.append(f"(?:{'|'.join(UNITS)})")
        elif re.search(r"\d", word):
            parts.append(r"\S*\d\S*")
        elif word == "-":
            parts.append(r"\S+")
        else:
            parts.append(re.escape(word))
    return r"\s*" + r"\s+".join(parts)


def shown(name, block, free=()):
    """A block with a command and its output: does it until all lines are there, in their order. `free`: lines with one of these
    words may be otherwise."""
    command, *lines = block.splitlines()
    lines = [like(line) for line in lines if line and line != "..." and not any(word in line for word in free)]
    until = time.monotonic() + LIMIT
    while True:
        text = done(name, command.removeprefix("$ "))
        if re.search(r"[^\n]*\n(?:.*\n)*?".join(lines), text):
            return
        if time.monotonic() > until:
            fail(f"'{command}' says:\n{text}\nand not as the page has it:\n{block}")
        time.sleep(0.5)


state = {}


def leave_out(block):
    """What other tests do: packages and builds."""


def demo(block):
    done("a", block)


def begin(key, name="a", pattern=None):
    def step(block):
        state[key] = Terminal(name, block.strip())
        if pattern:
            state[key].shows(pattern)
    return step


def count(block):
    begin("run", pattern=r"(?m)^7$")(block)


def restart_after_interrupt(block):
    run = state["run"]
    run.interrupt()
    run.ends()
    if "ckptd restart count" not in plain(run.text):
        fail(f"after Ctrl-C it does not say how to go on:\n{run.text}")
    state["run"] = Terminal("a", "exec " + block.strip())
    state["run"].shows(r"(?m)^9$")


def kill(block):
    done("a", block.strip())
    state["run"].ends()


def again(block):
    state["run"] = Terminal("a", "exec " + block.strip())
    state["run"].shows(r"(?m)^1\d$")


def after(block):
    for command in block.splitlines():
        done("a", command)
    if "restarted" not in done("a", "ckptd logs count"):
        fail("the log does not tell of the restart")
    done("a", "test -s count.html")
    state["run"].interrupt()
    state["run"].ends()
    done("a", "ckptd rm count")


def join(block):
    token, agent = block.splitlines()
    done("a", token)
    state["agent a"] = Terminal("a", agent)
    secret = done("a", "cat token")
    done("b", f"umask 077; printf %s '{secret.strip()}' > token")


def program(block):
    state["program"] = block


def build_and_run(block):
    build, run = block.splitlines()
    for name in ("a", "b"):
        done(name, f"cat > sum.c << 'END'\n{state['program']}END\n{build}")
    state["sum"] = Terminal("a", run)
    state["sum"].shows(r"(?m)^step 3: 30$")


def lose(block):
    state["sum"].shows(r"(?m)^step 12: 120$")
    done("b", block.strip())


def said(block):
    """Lines of the job's terminal, in their order."""
    terminal = state["sum"]
    # A line that the page breaks goes on with small letters.
    lines = re.sub(r"\n(?=and )", " ", block).splitlines()
    for line in lines:
        # How many ranks move is decided by how fast the machines are.
        terminal.shows(like(re.sub(r"moved .*", "moved ", line)))


def comes_back(block):
    state["agent b"] = Terminal("b", "ckptd agent --join-file token --slots 2")
    said(block)


def right(block):
    status = state["sum"].ends()
    last = [line for line in plain(state["sum"].text).splitlines() if line.startswith("step ")][-1]
    if status != 0 or last != block.strip():
        fail(f"the job ends with {status} and {last!r}")
    done("a", "ckptd report sum")
    done("b", "ckptd leave")
    state["coordinator"].interrupt()
    state["coordinator"].ends()


STEPS = [
    ("apt install", leave_out),
    ("cargo build", leave_out),
    ("ckptd demo", demo),
    ("ckptd run --interval 5 --name count", count),
    ("$ ckptd status count", lambda block: shown("a", block)),
    ("ckptd restart count", restart_after_interrupt),
    ("pkill -9 -f", kill),
    ("$ ckptd ls", lambda block: shown("a", block)),
    ("ckptd restart count", again),
    ("ckptd logs count", after),
    ("ckptd coordinator", begin("coordinator", pattern="the cluster's page: http")),
    ("(umask 077; ckptd token", join),
    ("ckptd agent", begin("agent b", "b")),
    ("$ ckptd nodes", lambda block: shown("a", block)),
    ("#include <mpi.h>", program),
    ("mpicc", build_and_run),
    ("$ ckptd status sum", lambda block: shown("a", block)),
    ("pkill -9 -x ckptd", lose),
    ("step 14: 140", said),
    ("ckptd: job sum goes on", comes_back),
    ("step 60: 600", right),
]

found = blocks()
for index, block in enumerate(found):
    start, step = STEPS[index] if index < len(STEPS) else ("", None)
    if step is None or not block.startswith(start):
        fail(f"block {index + 1} of the page is none that this test knows:\n{block}")
    step(block)
    print(f"pass {block.splitlines()[0]}", flush=True)
if len(found) < len(STEPS):
    fail(f"the page has no block that begins with {STEPS[len(found)][0]!r}")
