"""Tests of a wrong key, and of a broker that restarts."""

import pytest
from azure.core.exceptions import ClientAuthenticationError

from conftest import broker_url
from worker import Worker

TIMEOUT_SECONDS = 240
WRONG_KEY = "the key 'RootManageSharedAccessKey' is unknown or the signature does not fit"


def test_a_wrong_key_is_rejected_for_senders_of_tasks(shop, broker):
    with shop.app.connection_for_write(broker_url(broker, "not-the-key")) as connection:
        with pytest.raises(ClientAuthenticationError, match=WRONG_KEY):
            shop.price.apply_async((1, 1), connection=connection)


def test_a_worker_with_a_wrong_key_ends_with_the_reason(broker, shop, environment, tmp_path):
    worker = Worker(tmp_path, environment | {"BROKER_URL": broker_url(broker, "not-the-key")})
    try:
        worker.wait_for(WRONG_KEY)
        worker.process.wait()
    finally:
        worker.stop()


def test_work_continues_after_a_restart_of_the_broker(shop, broker, environment, tmp_path):
    with Worker(tmp_path, environment, "restarting") as worker:
        assert shop.price.apply_async((1, 2), queue="restarting").get(timeout=TIMEOUT_SECONDS) == 2
        waiting = shop.price.apply_async((2, 2), queue="waiting")
        broker.kill()
        broker.start()
        assert shop.price.apply_async((3, 2), queue="restarting").get(timeout=TIMEOUT_SECONDS) == 6
        assert not worker.has_ended
    with Worker(tmp_path, environment, "waiting"):
        assert waiting.get(timeout=TIMEOUT_SECONDS) == 4
