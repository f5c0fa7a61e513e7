"""A broker, Celery's configuration for it in environment variables, and the tasks of the shop."""

import importlib
import importlib.util
import os
import pathlib
import random
import shutil
import sys
import tempfile

import pytest

from broker import KEY, KEY_NAME, Broker
from worker import Worker

# The tests trust a broker that lives as long as they do, so they leave the installed certifi alone.
CERTIFI_COPY = tempfile.TemporaryDirectory(prefix="certifi-")


def pytest_configure():
    installed = pathlib.Path(importlib.util.find_spec("certifi").origin).parent
    shutil.copytree(installed, pathlib.Path(CERTIFI_COPY.name) / "certifi")
    sys.path.insert(0, CERTIFI_COPY.name)


def pytest_sessionfinish(session, exitstatus):
    """`cargo xtask test --only frameworks -k NAME` asks each framework; the name may be that of another's test."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.option.keyword:
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    # The SDK below kombu dials port 5671 and no other. An address of its own lets brokers run side by side.
    address = f"127.{random.randint(2, 254)}.{random.randint(0, 255)}.{random.randint(1, 254)}"
    folder = tmp_path_factory.mktemp("broker")
    broker = Broker(folder, listen_tls=f"{address}:5671", queue_port="127.0.0.1:0").start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def trust(broker):
    """What `cat certificate.pem >> $(python -m certifi)` does, to the copy."""
    import certifi

    bundle = pathlib.Path(certifi.where())
    assert bundle.is_relative_to(CERTIFI_COPY.name), "certifi was imported before its copy was there"
    with open(bundle, "ab") as file:
        file.write(pathlib.Path(broker.certificate).read_bytes())
    return bundle


@pytest.fixture(scope="session")
def environment(broker, trust, tmp_path_factory):
    """All that a worker is told."""
    return {
        "BROKER_URL": broker_url(broker),
        "RESULT_BACKEND": f"file://{tmp_path_factory.mktemp('results')}",
        "PYTHONPATH": CERTIFI_COPY.name,
        # A machine may have set it to a bundle of its own, and then it goes before certifi.
        "REQUESTS_CA_BUNDLE": str(trust),
    }


@pytest.fixture(scope="session")
def shop(environment):
    """The module `tasks`, as a web application would import it to send tasks."""
    os.environ.update(environment)
    tasks = importlib.import_module("tasks")
    yield tasks
    # Else threads of the SDK keep this process alive once the broker is gone.
    tasks.app.pool.force_close_all()
    tasks.app.close()


@pytest.fixture(scope="module")
def worker(environment, shop, tmp_path_factory):
    with Worker(tmp_path_factory.mktemp("worker"), environment) as worker:
        yield worker


def broker_url(broker, key=KEY):
    """kombu wants a host that ends with .net. What follows a slash is not part of the host for the SDK."""
    return f"azureservicebus://{KEY_NAME}:{key}@{broker.tls_address}/.net"
