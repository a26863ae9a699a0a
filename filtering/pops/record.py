"""The record of a broker: the messages in which it writes down each pop and each acknowledgement.

A pop that returns messages of a queue appends a *checkpoint*. It names the group, the topic, the queue and the queue
offsets that were handed out. Each acknowledgement appends a record, too. Both are timer messages: the broker appends
them to TIMER_TOPIC, and when they are due once more to the revive topic. What is due at once is only in the latter.

Source: PopMessageProcessor, AckMessageProcessor, PopCheckPoint, AckMsg, BatchAckMsg, KeyBuilder, TimerMessageStore.
"""

from __future__ import annotations

from filtering.names import RETRY_TOPIC_PREFIX, REVIVE_TOPIC_PREFIX

TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Of timer messages of all kinds (TimerMessageStore.TIMER_TOPIC)."""
REAL_TOPIC = "REAL_TOPIC"
"""The property of a timer message with the topic to which it goes when it is due."""
CHECKPOINT, ACK, BATCH_ACK = "ck", "ack", "bAck"
"""The tags of records (PopAckConstants)."""


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
