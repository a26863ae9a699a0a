"""The keys of ``inputs`` in a ledger entry, each with what its text says.

A night's entry repeats the inputs of the broker's entry before, unless it has its own. An entry of maintenance has its
inputs by broker (``BROKER/KEY``), and the broker's next nights repeat them.
"""

SOFTWARE = "mqsieve"
"""The version of mqsieve."""
VERSION_FROM = "rocketmq_version_from"
"""Where the broker's version is from: GIVEN by the user of the run, GIVEN_BEFORE, or why it was taken for that one."""
GIVEN, GIVEN_BEFORE = "given", "given before"
MISREAD = "misread_settings"
"""Values of the last broker.conf that the broker reads in another way than they seem, as JSON: a text for each."""
STORE_FOLDER = "store"
"""The store folder of the last snapshot."""
MESSAGE_LOG = "messages"
"""The fingerprint of the files of the message log, if one was read so far."""
NUMBERED_LINES = "numbered_lines"
"""What was read of a message log without queue ids and offsets, as JSON; empty or absent if messages have real ones.

schemas/messages/message_log.py writes and reads it. Queue ids are then made up: each topic has queue 0.
"""
OFFSET_FILES = "offsets"
"""The fingerprint of the last snapshot's offsets."""
COMMITTED_AT = "committed_at"
"""The time (ms) of the last snapshot's committed offsets; empty if it is not known."""
IS_ESTIMATED = "committed_at_is_estimated"
"""Whether the broker does not save that time, so that it was estimated: ``true``, or empty."""
NOT_COMMITTED = "not_committed"
"""The committed offsets that earlier snapshots had and the last one has not, as JSON.

jobs/night/past/vanished_offsets.py writes and reads it.
"""
QUEUES = "queues"
"""The number of queues of which the last snapshot had consume queue files."""
READ_QUEUES = "read_queues"
"""By topic, the number of queues that the last snapshot, or an earlier one, had in its topics.json, as JSON.

A whole night keeps the topics that have messages.
"""
ASSUMED_QUEUES = "assumed_queues"
"""Where clients with other tags shared queues of an unknown number, as JSON: [group, topic, queues with messages]."""
RESETS_BY_TIME = "resets_by_time"
"""The offsets that offset resets by time set, as JSON: by the line of the event, by queue id."""
NOT_REPLAYED = "not_replayed"
"""What the last snapshot shows of consumption that is not replayed, as JSON.

schemas/rocketmq_store/not_replayed.py writes and reads it.
"""
SUBSCRIPTION_FILE = "subscriptions"
"""The digest of the last subscription file."""
SUBSCRIPTIONS_FROM = "subscriptions_from"
"""Where the last subscription file came from, STORE or USER."""
STORE, USER = "store", "user"
FIRST_SNAPSHOT = "history"
"""Says that the subscriptions begin with a snapshot; empty if they do not."""
HOOKS = "hooks"
"""The filter hooks; empty if there were none."""
INPUTS_END = "inputs_end"
"""The time (ms) up to which the inputs so far reach."""
LAST_STORED = "last_stored"
"""The greatest store time (ms) of the messages that were read so far."""
DAMAGED_BODIES = "damaged_bodies"
"""The number of stored messages in the log whose body is damaged."""
CUT = "cut"
"""The physical offset from which the log differed from what earlier nights had read.

Empty if it did not differ, 0 if it was another log (a new epoch).
"""
REPEATED_FROM = "repeated_from"
"""The first of the earlier runs that the night repeated; empty if it repeated none."""
WITHDRAWN = "withdrawn"
"""The rows of earlier runs that a night or a rebuild removed or made again, as JSON.

schemas/withdrawals.py writes and reads it.
"""
MESSAGES_FROM = "messages_from"
"""The physical offset before which maintenance removed the messages."""
BODIES_FROM = "bodies_from"
"""The run before which maintenance removed the bodies."""
REBUILT = "rebuilt"
"""The tables that maintenance rebuilt from the others; of all brokers."""
