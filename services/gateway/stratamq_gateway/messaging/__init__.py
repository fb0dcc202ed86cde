"""`apache.rocketmq.v2.MessagingService`: what RocketMQ's clients of version 5 speak."""
