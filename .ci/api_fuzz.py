"""Send random requests, valid and invalid, to all interfaces of `heedful serve` with schemathesis.

    python .ci/api_fuzz.py                        the 2,000 requests of CI
    python .ci/api_fuzz.py --requests 100000      before a release

Requests are generated from the server's own OpenAPI document. Every response must be one that the document describes:
its status, its content type, its body. Status 500 is a finding. Rounds with further seeds follow until there were
enough requests, counted by the server. The first round with a finding ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.serving.running_server import RunningServer, running_server  # noqa: E402

EXAMPLES = 40
"""Random requests of each operation and round, besides those at the limits of its parameters."""
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
OPTIONS = ["--phases", "examples,coverage,fuzzing", "--mode", "all", "--continue-on-failure", "--no-color"]
QUIET = ["--warnings", "off", "--generation-database", "none"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000, help="number of requests")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round")
    chosen = parser.parse_args()
    settings = {"workers": 1, "log_requests": "false"}
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder), **settings) as server:
        sys.exit(fuzz(server, chosen.requests, chosen.seed))


def fuzz(server: RunningServer, wanted: int, seed: int) -> int:
    """Send rounds of requests. Return the exit code."""
    begin, statuses = time.monotonic(), Counter[str]()
    while statuses.total() < wanted:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/openapi.json"]
        limits = ["--seed", str(seed), "--max-examples", str(EXAMPLES), "--checks", CHECKS]
        done = subprocess.run([*command, *limits, *OPTIONS, *QUIET], capture_output=True, text=True, check=False)
        statuses = responses(server)
        if done.returncode or statuses["500"]:
            sys.stderr.write(f"{done.stdout}\n{done.stderr}\n{server.log()}\nseed {seed}: this round has findings.\n")
            return 1
        seed += 1
    listed = ", ".join(f"{count:,} × {status}" for status, count in sorted(statuses.items()))
    sys.stdout.write(f"{statuses.total():,} requests in {time.monotonic() - begin:,.0f} s: {listed}.\n")
    return 0


def responses(server: RunningServer) -> Counter[str]:
    """How often the server has answered with each status."""
    counts: Counter[str] = Counter()
    metrics = server.get("/metrics").body.decode()
    for status, count in re.findall(r'^heedful_requests_total\{.*status="(\d+)"\} (\d+)', metrics, re.M):
        counts[status] += int(count)
    return counts


if __name__ == "__main__":
    main()
