"""Ranks of mpi4py that start others, speak with all of them, and start more: spawn.py FOLDER COUNT.

Whenever the file go1, go2 and so on is in FOLDER, the ranks start COUNT more together, who belong to them from then on, and
rank 0 one more by itself, who leaves again. All exchange words with all, round after round, until the file end is there. Each
rank keeps a number that depends on every word that it got: an answer in which a single message was lost, repeated or changed
is wrong. At the end rank 0 works all of them out by itself.
"""

import os
import sys
import time

from mpi4py import MPI

MODULUS = (1 << 61) - 1


def first(rank):
    return (rank * 1_000_003 + 7_919) % MODULUS


def word(state, to):
    return (state * (to + 2) + to) % MODULUS


def following(state, words):
    for place, got in enumerate(words):
        state = (state * 31 + got * (place + 1)) % MODULUS
    return state


def exchange(everybody, state):
    return following(state, everybody.alltoall([word(state, to) for to in range(everybody.size)]))


def begin(comm, count):
    """Starts more ranks of this program."""
    # Open MPI 5 binds them otherwise, and fails where there are fewer cores than ranks.
    info = MPI.Info.Create({"bind_to": "none"})
    words = [os.path.abspath(__file__), *sys.argv[1:]]
    return comm.Spawn(sys.executable, words, maxprocs=count, info=info)


def leave(comm):
    """Ends what two have in common. Intel MPI 2021.18 may crash in MPI_Comm_disconnect by itself."""
    comm.Free() if "Intel" in MPI.Get_library_version() else comm.Disconnect()


def visit(everybody):
    """Rank 0 starts one that speaks with nobody else, and ends."""
    if everybody.rank == 0:
        visitor = begin(MPI.COMM_SELF, 1)
        visitor.bcast("visitor", root=MPI.ROOT)
        visitor.send(4711, dest=0)
        if visitor.recv(source=0) != 4712:
            sys.exit("spawn: WRONG answer of a visitor")
        leave(visitor)


def be_visitor(parent):
    parent.send(parent.recv(source=0) + 1, dest=0)
    leave(parent)


def grown(everybody, count):
    """All and COUNT more."""
    new = begin(everybody, count)
    new.bcast("member", root=MPI.ROOT if everybody.rank == 0 else MPI.PROC_NULL)
    return new.Merge(high=False)


def due(folder, generation):
    """What is to be done: go on, grow, or end."""
    if os.path.exists(f"{folder}/end"):
        return "end"
    return "grow" if os.path.exists(f"{folder}/go{generation}") else "go on"


def right(sizes, found):
    """Whether these are the numbers after as many rounds as the list of sizes is long."""
    states = []
    for size in sizes:
        states += [first(rank) for rank in range(len(states), size)]
        states = [following(state, [word(of, to) for of in states]) for to, state in enumerate(states)]
    return states == found


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    parent = MPI.Comm.Get_parent()
    if parent != MPI.COMM_NULL and parent.bcast(None, root=0) == "visitor":
        be_visitor(parent)
        return
    everybody = MPI.COMM_WORLD if parent == MPI.COMM_NULL else parent.Merge(high=True)
    state, sizes = first(everybody.rank), []
    generation = everybody.bcast(0)
    print(f"rank {everybody.rank} of {everybody.size} on {MPI.Get_processor_name()}", flush=True)
    reached = 0
    while True:
        state = exchange(everybody, state)
        sizes.append(everybody.size)
        if everybody.rank == 0 and reached < everybody.size:
            reached = everybody.size
            print(f"spawn: {reached} ranks", flush=True)
        now = everybody.bcast(due(folder, generation + 1) if everybody.rank == 0 else None)
        if now == "end":
            break
        if now == "grow":
            generation += 1
            visit(everybody)
            everybody = grown(everybody, count)
            everybody.bcast(generation)
        time.sleep(0.02)
    found = everybody.gather(state)
    if everybody.rank == 0:
        print(f"spawn: {'right' if right(sizes, found) else 'WRONG'}", flush=True)
    # MPICH before 4.2 may hang in MPI_Finalize if one comes there early.
    everybody.barrier()
    time.sleep(1)


main()
