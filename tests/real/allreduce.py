"""Ranks of mpi4py that reduce a state to all of them, round after round, until a file is there or SECONDS have passed.

allreduce.py FILE|SECONDS. Each rank keeps a list of numbers that depend on what all ranks had in all rounds before: an
answer in which a single message was lost, repeated or changed is wrong. At the end rank 0 works all of it out by itself.
"""

import os
import sys
import time

from mpi4py import MPI

WORDS = 64
MODULUS = (1 << 61) - 1


def first(rank):
    return [(rank * 1_000_003 + index * 7_919 + 1) % MODULUS for index in range(WORDS)]


def following(own, total, number):
    return [(word * 31 + common * (index + 1) + number) % MODULUS for index, (word, common) in enumerate(zip(own, total))]


def added(states):
    return [sum(words) % MODULUS for words in zip(*states)]


def until(word):
    begun = time.monotonic()
    if word.replace(".", "").isdigit():
        return lambda: time.monotonic() - begun > float(word)
    return lambda: os.path.exists(word)


def main():
    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    add = MPI.Op.Create(lambda left, right, _: added([left, right]), commute=True)
    ended = until(sys.argv[1])
    own, number = first(rank), 0
    print(f"rank {rank} of {ranks} on {MPI.Get_processor_name()}", flush=True)
    while True:
        own = following(own, world.allreduce(own, op=add), number)
        number += 1
        neighbour = world.sendrecv(own[0], dest=(rank + 1) % ranks, source=(rank - 1) % ranks)
        own[0] = (own[0] + neighbour) % MODULUS
        if world.bcast(ended() if rank == 0 else None):
            break
        time.sleep(0.005)
    found = world.gather(own)
    if rank == 0:
        states = [first(other) for other in range(ranks)]
        for turn in range(number):
            total = added(states)
            states = [following(state, total, turn) for state in states]
            heads = [state[0] for state in states]
            for other in range(ranks):
                states[other][0] = (heads[other] + heads[other - 1]) % MODULUS
        right = states == found
        print(f"allreduce: {'right' if right else 'WRONG'} after {number} rounds", flush=True)
        if right:
            print("allreduce: right", flush=True)
    # MPICH before 4.2 may hang in MPI_Finalize if one comes there early.
    world.barrier()
    time.sleep(0.5)
    sys.exit(0 if rank > 0 or right else 1)


main()
