"""Names of topics and groups for a client with a namespace. Source: NamespaceUtil, TopicValidator, MixAll.

OrderEvents -> shop%OrderEvents      %RETRY%cg_paid -> %RETRY%shop%cg_paid
cg_paid -> shop%cg_paid              RMQ_SYS_TRACE_TOPIC stays
"""

from __future__ import annotations

from filtering.tags_code import SCHEDULE_TOPIC

SEPARATOR = "%"
RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX = "%RETRY%", "%DLQ%"
LMQ_PREFIX = "%LMQ%"
"""Of the queues of multi-dispatched messages (MixAll). To consumers, each is a topic."""
LMQ_QUEUE_ID = 0
"""The only queue id of such a topic."""
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
"""Of the topic in which a broker keeps what POP consumers have not acknowledged yet (PopAckConstants)."""
TRACE_TOPIC, TRACE_TOPIC_PREFIX = "RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_"
"""Where clients send their traces, unless they name another topic (TopicValidator, TraceConstants)."""
SYSTEM_TOPICS = frozenset(
    {
        "BenchmarkTest", "CHECKPOINT_TOPIC", "OFFSET_MOVED_EVENT", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", TRACE_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC", SCHEDULE_TOPIC, "SELF_TEST_TOPIC", "TBW102",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)  # fmt: skip
SYSTEM_GROUPS = frozenset(
    {
        "CID_ONS-HTTP-PROXY", "CID_ONSAPI_OWNER", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_PULL", "DEFAULT_CONSUMER",
        "FILTERSRV_CONSUMER", "SCHEDULE_CONSUMER", "SELF_TEST_C_GROUP", "TOOLS_CONSUMER", "__MONITOR_CONSUMER",
    }
)  # fmt: skip
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
SYSTEM_PREFIXES = ("rmq_sys_", SYSTEM_GROUP_PREFIX)
"""Of names that NamespaceUtil leaves as they are."""


def is_lmq(topic: str) -> bool:
    """Whether a topic is the queue of multi-dispatched messages (MixAll.isLmq). No message has it as its topic."""
    return topic.startswith(LMQ_PREFIX)


def is_trace_topic(topic: str) -> bool:
    """Whether RocketMQ itself keeps a topic for traces."""
    return topic == TRACE_TOPIC or topic.startswith(TRACE_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether RocketMQ itself uses a consumer group (MixAll.isSysConsumerGroupPullMessage)."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def wrap_namespace(namespace: str, resource: str) -> str:
    """The name of the topic or group ``resource`` in ``namespace``. Names already in it, and system names, stay."""
    prefix, name = _split(resource)
    in_namespace = name.startswith(namespace + SEPARATOR)
    if not namespace or not resource or in_namespace or _is_system_resource(resource):
        return resource
    return prefix + namespace + SEPARATOR + name


def namespace_of(resource: str) -> str:
    """The namespace of a topic or group; empty if it has none."""
    if _is_system_resource(resource):
        return ""
    namespace, separator, _ = _split(resource)[1].partition(SEPARATOR)
    return namespace if separator else ""


def _split(resource: str) -> tuple[str, str]:
    """The prefix of a retry or dead-letter topic (empty for other topics) and the rest of the name."""
    for prefix in (RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix) :]
    return "", resource


def _is_system_resource(resource: str) -> bool:
    return resource in SYSTEM_TOPICS or resource.startswith(SYSTEM_PREFIXES)
