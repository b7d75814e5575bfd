#!/bin/sh
# Runs before the package goes for good. Jobs are not killed: who wants them elsewhere calls "ckptd leave" before.
set -e
if [ -d /run/systemd/system ]; then
    systemctl --no-reload disable --now ckptd-leave.service ckptd-agent.service ckptd-coordinator.service
fi
