"""Runs ranks in a distributed virtual machine of PRRTE, as its `prun` does: dvm.py FILE RANKS COMMAND...

FILE has the address of the one that is there (`prte --report-uri FILE`). What the ranks say comes here. It ends with the
job, with its status. For Debian's own Python, which has a tool's side of PMIx.
"""

import os
import sys
import threading
import warnings

# It calls what Python does not like any more.
warnings.simplefilter("ignore")

import pmix  # noqa: E402


def told(key, value, kind):
    return {"key": key, "value": value, "val_type": kind}


def flag(key):
    return told(key, True, pmix.PMIX_BOOL)


def must(what, status):
    if status:
        sys.exit(f"dvm: {what}: {status}")


def main():
    address, ranks, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    with open(address) as file:
        uri = file.readline().strip()
    tool = pmix.PMIxTool()
    status, _ = tool.init([told(pmix.PMIX_SERVER_URI, uri, pmix.PMIX_STRING)])
    must("no connection", status)
    ends, changed = {}, threading.Condition()

    # Of jobs before this one, too.
    def has_ended(_handler, _status, source, info, _results):
        key = pmix.PMIX_JOB_TERM_STATUS.decode()
        with changed:
            ends[source["nspace"]] = [item["value"] for item in info if item["key"] == key]
            changed.notify()
        return pmix.PMIX_EVENT_ACTION_COMPLETE, None

    status, _ = tool.register_event_handler([pmix.PMIX_EVENT_JOB_END], None, has_ended)
    must("no events", status)
    program = {
        "cmd": command[0],
        "argv": command,
        "env": [f"{name}={value}" for name, value in os.environ.items() if name.startswith(("OMPI_", "OPAL_", "PATH"))],
        "cwd": os.getcwd(),
        "maxprocs": ranks,
        "info": [told(pmix.PMIX_WDIR, os.getcwd(), pmix.PMIX_STRING)],
    }
    job = [flag(pmix.PMIX_FWD_STDOUT), flag(pmix.PMIX_FWD_STDERR), flag(pmix.PMIX_NOTIFY_COMPLETION)]
    status, name = tool.spawn(job, [program])
    must("no ranks", status)
    with changed:
        changed.wait_for(lambda: name in ends)
    sys.stdout.flush()
    tool.finalize()
    # The library's own threads would be waited for.
    os._exit(0 if ends[name] == [0] else 1)


main()
