"""What tests of readers send, and read of it."""


def send(client, topic: str, count: int, **fields) -> list:
    with client.producer() as producer:
        deliveries = [
            producer.send(topic, str(number).encode(), **fields) for number in range(count)
        ]
    return [delivery.result() for delivery in deliveries]


def bodies(messages) -> list[int]:
    return [int(message.body) for message in messages]
