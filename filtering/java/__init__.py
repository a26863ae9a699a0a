"""Java's own ways with text that RocketMQ's answers depend on."""
