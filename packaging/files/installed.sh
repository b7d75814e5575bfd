#!/bin/sh
# Runs after the package was installed, or replaced by a newer one. Daemons that run are those of the new executable
# then: jobs go on meanwhile, and the agent takes them over.
set -e
if command -v systemd-sysusers > /dev/null; then systemd-sysusers ckptd.conf; fi
if command -v systemd-tmpfiles > /dev/null; then systemd-tmpfiles --create ckptd.conf; fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl try-restart ckptd-coordinator.service ckptd-agent.service
fi
