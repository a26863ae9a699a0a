"""Asks a RocketMQ the stored questions: .venv/bin/python -m tests.oracle 5.6.0

Prints a table of the answers that differ from the stored ones, which hold for that version, and examples. Exits 1 if
any differs. Maven downloads the jars.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.java_process import QUIET
from filtering.rocketmq_version import TEXT_SEARCHES_SINCE, RocketMQVersion
from tests.unit.broker import cases
from tests.unit.sql92.cases import expressions

FOLDER = Path(__file__).parent
SHOWN = 5
CLASSES = (
    "BitsArray", "BloomFilter", "BrokerConfig", "CommitLogDispatcherCalcBitMap", "ConsumeFromWhere", "ConsumeQueueExt",
    "ConsumeType", "ConsumerFilterData", "ConsumerFilterManager", "ConsumerGroupInfo", "DispatchRequest", "Expression",
    "ExpressionForRetryMessageFilter", "ExpressionMessageFilter", "FilterAPI", "FilterFactory",
    "MessageEvaluationContext", "MessageExtBrokerInner", "MessageModel", "NamespaceUtil", "SubscriptionData",
)  # fmt: skip
"""RocketMQ's classes in Oracle.java. Versions have them in other packages."""
OTHER_IMPORTS = (
    "com.google.gson.*", "java.io.*", "java.lang.reflect.Field", "java.nio.charset.StandardCharsets", "java.util.*",
)  # fmt: skip
NOT_ASKED = ("broker_conf", "pull_refusals", "pulls_random")
"""Case files whose questions need a broker that runs."""


class Question(NamedTuple):
    """A question of one ``kind`` of Oracle.java, from a case ``file``, and its stored answer."""

    file: str
    kind: str
    asked: Any
    answer: Any


def questions(version: RocketMQVersion) -> Iterator[Question]:
    """All stored questions, with the answers that hold for a version."""
    for row in expressions(version):
        answer = [case["result"] for case in row["cases"]] if row["compiles"] else None
        yield Question("sql92, quirks, versions", "sql", row, answer)
    for row in cases("tags"):
        yield Question(
            "tags", "tags", row, [row["subString"], row["tagsSet"], row["codeSet"]] if row["error"] is None else None
        )
    for row in cases("tag_hashes"):
        yield Question("tag_hashes", "tag_hashes", row, row["tagsCode"])
    for row in cases("tag_match"):
        matches = [[case["tagsCode"], case["brokerMatch"]] for case in row["cases"]]
        yield Question("tag_match", "tag_match", row, matches if row["error"] is None else None)
    for row in cases("bloom"):
        answer = [row["k"], row["m"], row.get("bitPos")] if row["error"] is None else None
        yield Question("bloom", "bloom", row, answer)
    for row in cases("bloom_bitmaps"):
        answer = [row["hex"], [probe["hit"] for probe in row["probes"]]]
        yield Question("bloom_bitmaps", "bloom", row, answer if row["error"] is None else None)
    fields = ("topic", "group", "expression", "type", "clientVersion", "dead", "bitPos", "bitNum")
    for file in ("registry", "registry_random"):
        for row in cases(file):
            steps = [
                [[[each[name] for name in fields] for each in step["state"]], step["topics"]] for step in row["steps"]
            ]
            yield Question(file, "registry", row, steps)
    for row in cases("groupinfo"):
        names = ("topic", "subString", "type", "subVersion")
        steps = [[step["updated"], [[each[name] for name in names] for each in step["table"]]] for step in row["steps"]]
        yield Question("groupinfo", "groupinfo", row, steps)
    for row in cases("dispatch"):
        if version >= TEXT_SEARCHES_SINCE or not _has_text_search(row):
            outcomes = [[each["bitmap"], each["bitmapHit"], each["delivered"]] for each in row["messages"]]
            yield Question("dispatch", "dispatch", row, outcomes)
    retry = f"stage1, stage2 {'up to 5.1.3' if version.filters_redeliveries_to_tags else 'from 5.1.4'}"
    for row in cases("versions_retry"):
        level = row["level"].removeprefix("no RETRY_TOPIC, ")
        properties = {} if level == "-" else {"level": level}
        properties |= {"RETRY_TOPIC": "T"} if level == row["level"] else {}
        yield Question("versions_retry", "retry", row | {"properties": properties}, row[retry][1])
    names = ("wrap_namespace", "wrap_namespace_and_retry", "without_namespace", "namespace_of")
    for row in cases("namespaces"):
        yield Question("namespaces", "namespaces", row, [row[name] for name in names])


def _has_text_search(row: dict[str, Any]) -> bool:
    text = json.dumps(row["subscriptions"]).upper()
    return any(word in text for word in ("CONTAINS", "STARTSWITH", "ENDSWITH"))


def class_path(version: RocketMQVersion) -> str:
    """The jars of a version. Raises CalledProcessError if Maven does not find them."""
    with tempfile.NamedTemporaryFile() as output:
        resolve = ["mvn", "-q", f"-Drocketmq.version={version}", "dependency:build-classpath"]
        subprocess.run([*resolve, f"-Dmdep.outputFile={output.name}"], cwd=FOLDER, check=True)
        return Path(output.name).read_text().strip()


def program(jars: str) -> str:
    """Oracle.java with the imports for some jars. Raises ValueError if RocketMQ does not have a class any more."""
    names: dict[str, str] = {}
    for jar in jars.split(":"):
        if Path(jar).name.startswith("rocketmq-"):
            for entry in zipfile.ZipFile(jar).namelist():
                if entry.startswith("org/apache/rocketmq/"):
                    names.setdefault(entry.rpartition("/")[2].removesuffix(".class"), entry)
    if missing := [name for name in CLASSES if name not in names]:
        raise ValueError(f"the jars do not have {', '.join(missing)}: change Oracle.java and CLASSES")
    class_names = [names[name].removesuffix(".class").replace("/", ".") for name in CLASSES]
    imports = "".join(f"import {name};\n" for name in (*OTHER_IMPORTS, *class_names))
    return imports + (FOLDER / "Oracle.java").read_text()


def answers(jars: str, asked: Sequence[Question]) -> list[Any]:
    """The answers of some jars."""
    lines = "".join(json.dumps({"kind": each.kind, "question": each.asked}) + "\n" for each in asked)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "Oracle.java"
        source.write_text(program(jars))
        java = ["java", f"-Drmq.logback.configurationFile={QUIET}", f"-Duser.home={folder}", "-cp", jars, str(source)]
        ended = subprocess.run(java, input=lines, text=True, capture_output=True, check=False)
    if ended.returncode:
        raise RuntimeError(ended.stderr[-10_000:])
    return [json.loads(line) for line in ended.stdout.splitlines()]


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("give one version of RocketMQ, such as 5.6.0", file=sys.stderr)
        return 2
    version = RocketMQVersion.parse(arguments[0])
    jars = class_path(version)
    asked = list(questions(version))
    print(f"RocketMQ {version}\n\n| cases | questions | other answers |\n|---|---|---|")
    differing: list[tuple[Question, Any]] = []
    pairs = list(zip(asked, answers(jars, asked), strict=True))
    for file in dict.fromkeys(question.file for question in asked):
        file_pairs = [pair for pair in pairs if pair[0].file == file]
        others = [(question, answer) for question, answer in file_pairs if answer != question.answer]
        print(f"| {file} | {len(file_pairs):,} | {len(others):,} |")
        differing += others[:SHOWN]
    print(f"\nNot asked, since it takes a broker that runs: {', '.join(NOT_ASKED)}")
    for question, answer in differing:
        print(f"\n{question.file}: {json.dumps(question.asked)[:1000]}")
        print(f"  stored: {json.dumps(question.answer)[:1000]}\n  now:    {json.dumps(answer)[:1000]}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
