"""How RocketMQ filters messages: pure Python, no Spark session, no I/O, nothing on import."""
