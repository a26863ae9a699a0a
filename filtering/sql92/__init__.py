from filtering.sql92.dialect import RocketMQ
