"""A real broker with real consumers, in a process of its own (LiveBroker.java). Needs Java 17, and RocketMQ's jars."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from benchmarks.java_process import QUIET
from filtering.rocketmq_version import RocketMQVersion
from tests.cluster.processes import end_with_parent
from tests.oracle.__main__ import class_path

SOURCE = Path(__file__).with_name("LiveBroker.java")
OPENED = ("jdk.internal.ref", "sun.nio.ch", "java.nio", "java.lang", "java.util", "sun.net")


class LiveBroker:
    """A name server at ``address``, a broker and its clients, in ``folder``. Fails without Java or Maven's jars."""

    def __init__(self, folder: Path, version: RocketMQVersion) -> None:
        self.folder = folder
        jars = class_path(version)
        classes = folder / "classes"
        compile = ["javac", "-nowarn", "-Xlint:none", "-proc:none", "-d", str(classes), "-cp", jars, str(SOURCE)]
        subprocess.run(compile, check=True, capture_output=True)
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]
        exported = [f"--add-exports=java.base/{name}=ALL-UNNAMED" for name in OPENED[:2]]
        settings = {
            "user.home": folder,
            "rocketmq.log.root": folder,
            "rmq.logback.configurationFile": QUIET,
            "rocketmq.client.rebalance.waitInterval": 1000,  # not 20 s
        }
        self._process = subprocess.Popen(
            [
                "java", *opened, *exported, *(f"-D{name}={value}" for name, value in settings.items()), "-Xmx400m",
                "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
                f"{classes}:{jars}", "LiveBroker", folder / "broker",
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            preexec_fn=end_with_parent,
        )  # fmt: skip
        self.address = f"127.0.0.1:{self.ask('start').partition(chr(9))[0]}"

    def ask(self, *question: object) -> str:
        """The answer to a line of stdin."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*question, sep="\t", file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().rstrip("\n")
        assert not (answer or "failed").startswith("failed"), (question, answer)
        return answer

    def send(self, topics: Iterable[str], tags: Sequence[str], prices: Sequence[int]) -> None:
        """Sends messages with these tags and these values of the property price to each topic."""
        for topic in topics:
            for tag, price in zip(tags, prices, strict=True):
                self.ask("send", topic, tag, f"price={price}")

    def received(self) -> Counter[tuple[str, str, int, int]]:
        """Group, topic, queue id and queue offset of each message that listeners got so far."""
        lines = (self.folder / "broker" / "received.tsv").read_text().splitlines()
        rows = (line.split("\t") for line in lines)
        return Counter((group, topic, int(queue_id), int(offset)) for group, topic, queue_id, offset in rows)

    def __enter__(self) -> LiveBroker:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()
