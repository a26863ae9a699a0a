"""Names of topics and groups that mean something to RocketMQ.

Sources: NamespaceUtil, TopicValidator, MixAll, KeyBuilder, PopAckConstants, TimerMessageStore.
"""

from __future__ import annotations

from filtering.tags_code import SCHEDULE_TOPIC

SEPARATOR = "%"
RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX = "%RETRY%", "%DLQ%"
LMQ_PREFIX = "%LMQ%"
"""Of the queues of multi-dispatched messages (MixAll). To consumers, each is a topic."""
LMQ_QUEUE_ID = 0
"""The only queue id of such a topic."""
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


# Queues of multi-dispatched messages, retry topics, traces, and system groups.


def is_lmq(topic: str) -> bool:
    """Whether a topic is the queue of multi-dispatched messages (MixAll.isLmq). No message has it as its topic."""
    return topic.startswith(LMQ_PREFIX)


def is_retry_topic(topic: str) -> bool:
    """Whether messages that consumers of a group failed on are in a topic, for that group (KeyBuilder)."""
    return topic.startswith(RETRY_TOPIC_PREFIX)


def group_of_topic(topic: str) -> str | None:
    """The group of a retry topic or a dead-letter queue; None for other topics."""
    prefix, name = _split(topic)
    return name if prefix else None


def is_trace_topic(topic: str) -> bool:
    """Whether RocketMQ itself keeps a topic for traces."""
    return topic == TRACE_TOPIC or topic.startswith(TRACE_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether RocketMQ itself uses a consumer group (MixAll.isSysConsumerGroupPullMessage)."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


# Names for a client with a namespace:
#
#     OrderEvents -> shop%OrderEvents      %RETRY%cg_paid -> %RETRY%shop%cg_paid
#     cg_paid -> shop%cg_paid              RMQ_SYS_TRACE_TOPIC stays


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


# The record of a broker: the messages in which it writes down each pop and each acknowledgement.
#
# A pop that returns messages of a queue appends a *checkpoint*. It names the group, the topic, the queue and the queue
# offsets that were handed out. Each acknowledgement appends a record, too. Both are timer messages: the broker appends
# them to TIMER_TOPIC, and when they are due once more to the revive topic. What is due at once is only in the latter.


TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Of timer messages of all kinds."""
REAL_TOPIC = "REAL_TOPIC"
"""The property of a message in a system topic with the topic to which it goes when it is due."""
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
"""Of the topic in which a broker keeps what POP consumers have not acknowledged yet."""
CHECKPOINT, ACK, BATCH_ACK = "ck", "ack", "bAck"
"""The tags of records."""


def is_record_topic(topic: str) -> bool:
    """Whether records are in a topic. In TIMER_TOPIC, they are those whose REAL_TOPIC is a revive topic."""
    return topic == TIMER_TOPIC or topic.startswith(REVIVE_TOPIC_PREFIX)


def retry_topics(consumer_group: str, topic: str) -> tuple[str, str]:
    """The topics of redeliveries of a topic to a group: as brokers name it by default, and with enableRetryTopicV2."""
    return (
        f"{RETRY_TOPIC_PREFIX}{consumer_group}_{topic}",
        f"{RETRY_TOPIC_PREFIX}{consumer_group}+{topic}",
    )


def subscribed_topic(consumer_group: str, topic: str) -> str:
    """The topic that a group subscribes to, for a topic or one of its :func:`retry_topics`."""
    prefix = RETRY_TOPIC_PREFIX + consumer_group
    rest = topic.removeprefix(prefix)
    return rest[1:] if topic.startswith(prefix) and rest[:1] in ("_", "+") else topic
