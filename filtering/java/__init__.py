"""Java's rules for texts and numbers on which RocketMQ's answers depend."""
