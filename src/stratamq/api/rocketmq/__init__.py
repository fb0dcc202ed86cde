"""Messages of RocketMQ's own gRPC protocol, which the gateway speaks. Generated."""
