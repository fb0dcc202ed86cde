"""Object stores for whole brokers."""

from tests.support.server_fixtures import azurite, fake_gcs, moto  # noqa: F401
