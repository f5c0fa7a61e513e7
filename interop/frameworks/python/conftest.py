"""Fixtures: a broker, Celery's configuration for it in environment variables, and the tasks of the shop."""

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

# The tests trust a temporary broker in a copy of certifi, so the installed one is not changed.
CERTIFI_COPY = tempfile.TemporaryDirectory(prefix="certifi-")


def pytest_configure():
    installed = pathlib.Path(importlib.util.find_spec("certifi").origin).parent
    shutil.copytree(installed, pathlib.Path(CERTIFI_COPY.name) / "certifi")
    sys.path.insert(0, CERTIFI_COPY.name)


def pytest_sessionfinish(session, exitstatus):
    """Accepts that no test was selected: `cargo xtask test --only frameworks -k NAME` runs each framework, and the name
    may be that of a test of another one.
    """
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.option.keyword:
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture(scope="session")
def broker(tmp_path_factory):
    # The SDK below kombu supports port 5671 only. A separate address permits several brokers at the same time.
    address = f"127.{random.randint(2, 254)}.{random.randint(0, 255)}.{random.randint(1, 254)}"
    folder = tmp_path_factory.mktemp("broker")
    broker = Broker(folder, listen_tls=f"{address}:5671", queue_port="127.0.0.1:0").start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def trust(broker):
    """Applies `cat certificate.pem >> $(python -m certifi)` to the copy."""
    import certifi

    bundle = pathlib.Path(certifi.where())
    assert bundle.is_relative_to(CERTIFI_COPY.name), "certifi was imported before its copy was made"
    with open(bundle, "ab") as file:
        file.write(pathlib.Path(broker.certificate).read_bytes())
    return bundle


@pytest.fixture(scope="session")
def environment(broker, trust, tmp_path_factory):
    """Returns the complete configuration of a worker."""
    return {
        "BROKER_URL": broker_url(broker),
        "RESULT_BACKEND": f"file://{tmp_path_factory.mktemp('results')}",
        "PYTHONPATH": CERTIFI_COPY.name,
        # The machine's environment may set it to another bundle, which has precedence over certifi.
        "REQUESTS_CA_BUNDLE": str(trust),
    }


@pytest.fixture(scope="session")
def shop(environment):
    """Imports the module `tasks`, as a web application would to send tasks."""
    os.environ.update(environment)
    tasks = importlib.import_module("tasks")
    yield tasks
    # Otherwise threads of the SDK keep this process alive after the broker has stopped.
    tasks.app.pool.force_close_all()
    tasks.app.close()


@pytest.fixture(scope="module")
def worker(environment, shop, tmp_path_factory):
    with Worker(tmp_path_factory.mktemp("worker"), environment) as worker:
        yield worker


def broker_url(broker, key=KEY):
    """Returns kombu's URL of the broker. kombu requires a host that ends with .net. The SDK ignores the part after a
    slash in the host.
    """
    return f"azureservicebus://{KEY_NAME}:{key}@{broker.tls_address}/.net"
