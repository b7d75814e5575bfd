#!/bin/bash
# A job that survives the loss of nodes of its allocation.
#SBATCH --job-name=simulate
#SBATCH --nodes=4 --ntasks-per-node=8
#SBATCH --no-kill
# 'mpirun' as you would call it without ckptd, of any run time that 'ckptd doctor --mpi' knows.
ckptd slurm run --interval 60 mpirun ./simulate
