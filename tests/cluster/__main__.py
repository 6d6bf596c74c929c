"""`python -m tests.cluster install|start|stop|remove|env|status`."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.cluster.config import Layout, cgroups_usable
from tests.cluster.slurm import Cluster, install

DEFAULT_PORT = 17400


def main() -> int:
    verb = sys.argv[1] if len(sys.argv) > 1 else ""
    directory = os.environ.get("CCL_SEARCH_SLURM") or f"{tempfile.gettempdir()}/ccl-search-slurm"
    cluster = Cluster(Layout(Path(directory), DEFAULT_PORT, cgroups=cgroups_usable()))
    if verb == "env":
        print(f"export CCL_SEARCH_SLURM='{directory}' SLURM_CONF='{cluster.layout.slurm_conf}'")
    elif verb == "status":
        print(cluster.client("sinfo", "-N", "-l"))
    elif verb in ("start", "stop", "remove"):
        getattr(cluster, verb)()
    elif verb == "install":
        install()
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
