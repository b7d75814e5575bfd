# Two ranks of MPI: how long a message takes one way, of 8 bytes and of 64 KiB, and a step of a millisecond of work that
# ends with an exchange of 8 KiB, as a simulation of neighbouring cells has it. Prints three lines of a name and
# microseconds, each the median of many.
import statistics
import sys
import time

from mpi4py import MPI

world = MPI.COMM_WORLD
other = 1 - world.Get_rank()
rounds = int(sys.argv[1])


def there_and_back(buffer):
    if other == 1:
        world.Send([buffer, MPI.BYTE], other)
        world.Recv([buffer, MPI.BYTE], other)
    else:
        world.Recv([buffer, MPI.BYTE], other)
        world.Send([buffer, MPI.BYTE], other)


def step(mine, theirs):
    until = time.perf_counter() + 1e-3
    while time.perf_counter() < until:
        pass
    world.Sendrecv([mine, MPI.BYTE], other, recvbuf=[theirs, MPI.BYTE], source=other)


def median(act, times):
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


small, large = bytearray(8), bytearray(64 * 1024)
mine, theirs = bytearray(8192), bytearray(8192)
world.Barrier()
measured = [
    ("small", median(lambda: there_and_back(small), rounds * 10) / 2),
    ("large", median(lambda: there_and_back(large), rounds * 2) / 2),
    ("step", median(lambda: step(mine, theirs), rounds)),
]
if other == 1:
    for name, microseconds in measured:
        print(name, microseconds)
