"""All measurements, one after another: ./spark-submit.sh bench [NAME [options]].

Names: night, nights, message_log, answers, matcher, catalyst, spark_predicate, spark_pipeline, decode, cluster,
compare. Without one: all but cluster and compare, with their defaults, into benchmarks/results.
"""

from __future__ import annotations

import subprocess
import sys

ALL = (
    "night",
    "nights",
    "message_log",
    "answers",
    "matcher",
    "catalyst",
    "spark_predicate",
    "spark_pipeline",
    "decode",
)
NAMES = (*ALL, "cluster", "compare")


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] not in NAMES:
        print(f"mqsieve: bench takes one of {', '.join(NAMES)}, or nothing for all", file=sys.stderr)
        return 2
    if sys.platform != "linux":
        print("mqsieve: the benchmarks read /proc, so they need Linux", file=sys.stderr)
        return 2
    # A process each: one pins itself to a core, and the JVM of another would stay.
    commands = [[arguments[0], *arguments[1:]]] if arguments else [[name] for name in ALL]
    for name, *options in commands:
        print(f"\n{name}\n", flush=True)
        code = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
