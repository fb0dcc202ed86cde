"""A stop does not wait for a storage that does not answer."""

import socket

from tests.support.brokers import Broker


def test_a_service_ends_in_order_while_an_object_store_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        given = (
            "tier.target=s3://bucket/prefix",
            f"tier.endpoint=http://127.0.0.1:{server.getsockname()[1]}",
            "tier.allow_http=true",
            "tier.storage_timeout_ms=3600000",
        )
        with Broker(tmp_path / "store", tmp_path / "logs", given) as broker:
            broker.start(["commitlog"])
            broker.spawn("tier")
            connection, _ = server.accept()
            with connection:
                assert connection.recv(1)  # a request is under way
                broker.terminate("tier")
            assert "pending requests abandoned" in broker.output("tier")
