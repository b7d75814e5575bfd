#!/bin/sh
# For 'Epilog=' in slurm.conf: removes what 'ckptd slurm run' has left on a node of a job that was killed outright. Slurm calls
# it as root, once the job's steps have ended. It removes as the job's user, who may have put anything there under that name.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
# Both are numbers, or this is no epilog.
case "$SLURM_JOB_ID" in '' | *[!0-9]*) exit 0 ;; esac
case "$SLURM_JOB_UID" in '' | *[!0-9]*) exit 0 ;; esac
cd / || exit 0
setpriv --reuid "$SLURM_JOB_UID" --regid "${SLURM_JOB_GID:-65534}" --clear-groups \
    find /tmp -maxdepth 1 -type d -user "$SLURM_JOB_UID" -name "ckptd-slurm-$SLURM_JOB_ID-*" -exec rm -rf {} +
# Whatever is left, the node is fit for the next job: a failure would drain it.
exit 0
