"""The operator's command line: python -m ddpjob_operator."""

import argparse
import sys

import uvloop

from ddpjob_core.api.network_policy import Isolation, IsolationError
from ddpjob_core.api.scope import Scope, ScopeError
from ddpjob_operator.app import Options, operate
from ddpjob_operator.credentials import NoClusterError
from ddpjob_operator.logs import set_up_logging
from ddpjob_operator.service_account import namespace_of_pod


def main() -> int:
    """Run the operator until it is asked to stop. Returns the exit code."""
    default = Options()
    parser = argparse.ArgumentParser(prog="ddpjob-operator", description="Runs DDPJobs in a Kubernetes cluster.")
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NAMESPACE[,NAMESPACE...]",
        help="a namespace to serve, or several; may be given more than once (default: all namespaces)",
    )
    parser.add_argument(
        "--lease-namespace",
        default=default.lease_namespace,
        help="namespace of the Lease of the operator that leads; the same for all operators of a cluster (%(default)s)",
    )
    parser.add_argument(
        "--lease-duration",
        type=float,
        default=default.lease_duration,
        help="seconds without a renewal after which another operator takes over, 1 to 60 (%(default)s)",
    )
    parser.add_argument(
        "--workers", type=int, default=default.workers, help="number of jobs reconciled concurrently (%(default)s)"
    )
    parser.add_argument("--port", type=int, default=default.port, help="port of /metrics and /healthz (%(default)s)")
    parser.add_argument(
        "--poll-interval",
        type=float,
        default=default.poll_interval,
        help="seconds between progress polls (%(default)s)",
    )
    parser.add_argument(
        "--progress-writes",
        type=float,
        default=default.progress_writes,
        help="maximum number of progress updates written per second, over all jobs (%(default)s)",
    )
    parser.add_argument(
        "--requests-in-flight",
        type=int,
        default=default.requests_in_flight,
        help="maximum number of concurrent requests to the API server (%(default)s)",
    )
    parser.add_argument(
        "--watch-seconds",
        type=float,
        default=default.watch_seconds,
        help="seconds that one watch request lasts; a silent one is detected after a third more (%(default)s)",
    )
    parser.add_argument(
        "--stuck-after",
        type=float,
        default=default.stuck_after,
        help="seconds after which a job that waits or is being reconciled makes /healthz fail (%(default)s)",
    )
    parser.add_argument(
        "--ttl-seconds-after-finished",
        type=_seconds,
        help="seconds after which a finished job without spec.ttlSecondsAfterFinished is deleted (default: never)",
    )
    parser.add_argument(
        "--network-policies",
        action="store_true",
        help="create a NetworkPolicy for each job: its own pods may connect to each other, those of its namespace to "
        "the ports that it declares, and the operator to those of metrics (default: none is created)",
    )
    parser.add_argument(
        "--metrics-namespace",
        action="append",
        default=[],
        metavar="NAMESPACE[,NAMESPACE...]",
        help="a namespace whose pods may read metrics in spite of --network-policies, such as that of Prometheus, or "
        "several; may be given more than once (default: the operator's own alone)",
    )
    parser.add_argument(
        "--log-format", choices=["text", "json"], default="text", help="format of the log (%(default)s)"
    )
    options = vars(parser.parse_args())
    try:
        options["scope"] = Scope.parse(options.pop("namespace"))
    except ScopeError as error:
        parser.error(f"argument --namespace: {error}")
    isolated, readers = options.pop("network_policies"), options.pop("metrics_namespace")
    if readers and not isolated:
        parser.error("argument --metrics-namespace: it means nothing without --network-policies")
    try:
        own = namespace_of_pod() or options["lease_namespace"]
        options["isolation"] = Isolation.of(own, readers) if isolated else None
    except IsolationError as error:
        parser.error(f"argument --metrics-namespace: {error}")
    set_up_logging(options.pop("log_format"))
    try:
        uvloop.run(operate(Options(**options)))
    except NoClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _seconds(text: str) -> int:
    seconds = int(text)
    if seconds < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return seconds


if __name__ == "__main__":
    sys.exit(main())
