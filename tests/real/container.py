"""Has files open in a container until FILE is there; then nothing of them is to be different. usage: container.py FILE"""

import errno
import mmap
import os
import sys
import time

end = sys.argv[1]
reading = os.open("/data/read", os.O_RDONLY)
os.lseek(reading, 3, os.SEEK_SET)
writing = os.open("/writable/written", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.write(writing, b"one")
adding = os.open("/work/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC)
os.write(adding, b"begin ")
folder = os.open("/data", os.O_RDONLY)
with open("/data/mapped", "rb") as file:
    private = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
with open("/writable/shared", "r+b") as file:
    shared = mmap.mmap(file.fileno(), 0)
private[0:1] = b"M"
shared[0:1] = b"S"


def paths():
    """What the kernel shows of what is open and of the program."""
    names = [f"/proc/self/fd/{fd}" for fd in (reading, writing, adding, folder)]
    return [os.readlink(name) for name in [*names, "/proc/self/exe", "/proc/self/cwd"]]


wrong = []
before = paths()
print("started", flush=True)
while not os.path.exists(end):
    time.sleep(0.02)
if paths() != before:
    wrong.append(f"{before} {paths()}")
if os.read(reading, 20) != b"3456789":
    wrong.append("another offset")
try:
    os.open(f"/proc/self/fd/{reading}", os.O_WRONLY)
    wrong.append("a read-only mount that is written to")
except OSError as error:
    if error.errno != errno.EROFS:
        wrong.append(str(error))
os.write(writing, b" two")
os.write(adding, b"end")
if os.pread(writing, 20, 0) != b"one two" or open("/work/log", "rb").read() != b"begin end":
    wrong.append("other content")
if private[:] != b"Mapped file" or open("/data/shared", "rb").read() != b"Shared file":
    wrong.append("other memory")
if not os.path.exists(f"/proc/self/fd/{folder}/../image") or "root" in os.listdir(f"/proc/self/fd/{folder}/.."):
    wrong.append("another folder above")
print("container: right" if not wrong else wrong)
