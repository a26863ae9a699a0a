"""nightly: a broker's store and its subscriptions, all the way to who got which message."""

from __future__ import annotations

from jobs import application
from jobs.deliver import deliver
from jobs.dispatch import dispatch
from jobs.filter_hooks import add_filter_hooks, read_filter_hooks
from jobs.ingest import add_source, ingest
from jobs.register import add_subscriptions, register
from jobs.run import Run
from jobs.summary import print_summary


def main(arguments: list[str]) -> None:
    parser = application.broker_parser("nightly", __doc__)
    add_source(parser)
    add_subscriptions(parser)
    add_filter_hooks(parser)
    options = parser.parse_args(arguments)
    hooks = read_filter_hooks(options.filter_hooks)
    with Run.start("nightly", options) as run:
        ingest(run, options.store)
        register(run, options.subscriptions)
        dispatch(run)
        deliver(run, hooks)
        print_summary(run, options)


if __name__ == "__main__":
    application.run(main)
