"""The same program over Queue Storage: only the URL of the broker differs."""

import pytest
from celery import chain

from worker import Worker

TIMEOUT_SECONDS = 240


@pytest.fixture(scope="module")
def url(broker):
    parts = dict(part.split("=", 1) for part in broker.storage_connection_string.strip(";").split(";"))
    return f"azurestoragequeues://{parts['AccountKey']}@{parts['QueueEndpoint']}"


@pytest.fixture(scope="module")
def worker(shop, environment, url, tmp_path_factory):
    with Worker(tmp_path_factory.mktemp("worker"), environment | {"BROKER_URL": url}, "stored") as worker:
        yield worker


def test_tasks_run_and_are_retried(shop, worker, url):
    with shop.app.connection_for_write(url) as connection:
        price = shop.price.apply_async((2, 3), queue="stored", connection=connection)
        paid = shop.pay.apply_async(("A1", 1), queue="stored", connection=connection)
        assert price.get(timeout=TIMEOUT_SECONDS) == 6
        assert paid.get(timeout=TIMEOUT_SECONDS) == {"order": "A1", "attempts": 2}


def test_a_chain_passes_each_result_to_the_next_task(shop, worker, url):
    steps = chain(shop.price.s(2, 50).set(queue="stored"), shop.with_tax.s().set(queue="stored"))
    with shop.app.connection_for_write(url) as connection:
        assert steps.apply_async(connection=connection).get(timeout=TIMEOUT_SECONDS) == 120
