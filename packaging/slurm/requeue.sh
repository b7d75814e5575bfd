#!/bin/bash
# A job that takes longer than an allocation: five minutes before the time is over a last checkpoint goes to a folder that all
# nodes see, and the job into the queue again. The same before a preemption where the site has a GraceTime and
# PreemptParameters=send_user_signal.
#SBATCH --job-name=simulate
#SBATCH --nodes=2-4
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue --open-mode=append
#SBATCH --no-kill
mkdir -p "$HOME/kept"
# By 'exec', so that the signal comes to ckptd.
exec ckptd slurm run --store "$HOME/kept" --requeue mpirun ./simulate
