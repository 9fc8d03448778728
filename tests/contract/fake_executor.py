"""Stands in for an executor: takes one line of work from stdin and does what the job's id says."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

from stage_worker.engine.ledger import Activity
from stage_worker.record import Record, RecordWriter


def main() -> None:
    writer = RecordWriter(Record(int(sys.argv[sys.argv.index("--record-fd") + 1])))
    print("imports are done", flush=True)
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    work = json.loads(line)
    log = os.open(work["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    writer.start(stages=(1,))
    writer.beat(peak_bytes=1000)
    print(f"works for {json.loads(work['assignment'])['job']}", flush=True)
    match json.loads(work["assignment"])["job"]:
        case "exits-7":
            sys.exit(7)
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "silent":
            time.sleep(60)
        case "stuck":
            writer.switch((Activity.FORWARD, 1), time.monotonic())
        case "grandchild":
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            print(f"grandchild {child.pid}", flush=True)
        case "loads":
            writer.set_loaded()
            writer.set_transferred(sent_bytes=11, received_bytes=22)
    threading.Thread(target=leave_at_end_of_input, daemon=True).start()
    while True:
        writer.beat(peak_bytes=1000)
        time.sleep(0.1)


def leave_at_end_of_input() -> None:
    sys.stdin.read()
    os._exit(0)


main()
