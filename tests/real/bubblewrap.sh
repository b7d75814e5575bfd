#!/bin/bash
# A sandbox: the whole system read-only, a folder in memory over another one. Until FILE is there it runs
# one process after the other; then nothing in the sandbox is to be different.
# usage: bubblewrap.sh FILE
exec bwrap --ro-bind / / --dev-bind /dev /dev --tmpfs /var/tmp bash -c '
	mkdir /var/tmp/folder
	echo kept > /var/tmp/folder/file
	mounts=$(cut -d" " -f 4- /proc/self/mountinfo | sort)
	echo started
	until [ -e "$0" ]; do
		sleep 0.02
	done
	[ "$(cut -d" " -f 4- /proc/self/mountinfo | sort)" = "$mounts" ] || echo "other mounts"
	[ "$(cat /var/tmp/folder/file)" = kept ] || echo "another file"
	touch /etc/ckptd-new 2>/dev/null && echo "a system that is not read-only"
	echo "bubblewrap: right"
' "$1" | (
	answer=
	while read -r line; do
		case $line in started) echo started ;; *) answer="$answer$line" ;; esac
	done
	echo "$answer"
)
