#!/bin/sh
# Runs before the package goes for good. ckptd-leave.service has the jobs of a cluster move away first, if it can.
set -e
if [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now ckptd-leave.service ckptd-agent.service ckptd-coordinator.service || true
fi
