"""How RocketMQ filters messages: pure Python without Spark or I/O. Imports have no side effects."""
