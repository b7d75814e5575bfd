#!/bin/sh
# Runs after the package was installed, or replaced by a newer one. Daemons that run are those of the new executable
# then: jobs go on meanwhile, and the agent takes them over.
set -e
# What goes wrong here is said, and leaves the package installed: a daemon that does not come up is no reason to take it away.
if command -v systemd-sysusers > /dev/null; then systemd-sysusers ckptd.conf || true; fi
if command -v systemd-tmpfiles > /dev/null; then systemd-tmpfiles --create ckptd.conf || true; fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
    systemctl try-restart ckptd-coordinator.service ckptd-agent.service || true
fi
