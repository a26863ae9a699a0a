"""Delta tables, one module each, with the readers of RocketMQ's files, the answers and the audits."""
