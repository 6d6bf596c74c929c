"""A driver that a test kills: submits a job, tells its handle, polls on. `python -m tests.tpu.driver FILE [ahead]`."""

from __future__ import annotations

import json
import pickle
import sys
import time
from pathlib import Path

from launchers.tpu_vm.client import GoogleClient
from launchers.tpu_vm.launcher import TpuVmLauncher


def main() -> None:
    """Read settings, service and job from a file that the test wrote; never ends by itself."""
    told = Path(sys.argv[1])
    settings, url, job, polls = pickle.loads(told.read_bytes())
    launcher = TpuVmLauncher(settings, GoogleClient("test-project", url, anonymous=True))
    handle = launcher.submit(job)
    told.with_suffix(".handle").write_text(json.dumps(handle))
    seen = 0
    while True:
        if seen < polls:
            state = launcher.poll(handle)
            with told.with_suffix(".states").open("a") as stream:
                stream.write(f"{state.value}\n")
            seen += 1
        time.sleep(0.2)


if __name__ == "__main__":
    main()
