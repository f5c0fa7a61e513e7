"""Starts a broker for tests, reads its addresses from its output, moves its clock, and stops it by its process id."""

import datetime
import itertools
import os
import pathlib
import queue
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.request

START_TIMEOUT_SECONDS = 60
STOP_TIMEOUT_SECONDS = 30
KEY_NAME = "RootManageSharedAccessKey"
KEY = "SAS_KEY_VALUE"
# Ports below the range from which the system takes ports for outgoing connections. A client that keeps dialling a port
# of that range while the broker is down can connect to itself, and then the broker cannot bind the port.
FIXED_PORTS = range(20000, 32000)


class Clock:
    """The clock of a broker. A test moves it instead of waiting until a lock, a time to live or a schedule ends.

    The SDKs use real time. After a move their clocks are behind the broker's, so locks appear to last longer.
    """

    def __init__(self, address):
        self.url = f"http://{address}/clock"
        self.ahead = datetime.timedelta(0)

    def now(self):
        return datetime.datetime.now(datetime.timezone.utc) + self.ahead

    def in_seconds(self, seconds):
        return self.now() + datetime.timedelta(seconds=seconds)

    def advance(self, seconds):
        self._set(self.ahead + datetime.timedelta(seconds=seconds))

    def pass_by(self, moment):
        """Moves the clock just past a moment, if the broker has not reached it yet."""
        self.advance(max(0, (moment - self.now()).total_seconds()) + 0.01)

    def reset(self):
        """Returns to real time."""
        if self.ahead:
            self._set(datetime.timedelta(0))

    def _set(self, ahead):
        milliseconds = round(ahead / datetime.timedelta(milliseconds=1))
        request = urllib.request.Request(self.url, data=str(milliseconds).encode(), method="PUT")
        with urllib.request.urlopen(request, timeout=START_TIMEOUT_SECONDS):
            pass
        self.ahead = ahead


class Broker:
    """One broker process with its data folder. It can be killed and restarted at the same address."""

    def __init__(
        self,
        folder,
        queues=(),
        keys=(),
        listen="127.0.0.1:0",
        listen_tls="off",
        http="off",
        https="off",
        blob_port="off",
        queue_port="off",
        storage_key=None,
        configs=(),
        environment=None,
    ):
        self.folder = pathlib.Path(folder)
        self.places = ["--listen", listen, "--listen-tls", listen_tls, "--http", http, "--https", https]
        self.places += ["--blob-port", blob_port, "--queue-port", queue_port]
        self.storage_key = storage_key
        self.environment = environment or {}
        # The broker's built-in key is valid only while no other key is configured, so it is added to the configured
        # keys.
        self.keys = [f"{KEY_NAME}={KEY}:Manage", *keys] if keys else []
        self.arguments = ["--test-clock", *options("--queue", queues), *options("--key", self.keys)]
        self.arguments += options("--config", map(str, configs))
        self.arguments += options("--storage-key", [storage_key] if storage_key else [])
        self.labels = {}
        self.clock = None
        self.process = None

    def start(self):
        binary = os.environ.get("PEEKLOCK_BIN")
        if not binary:
            raise RuntimeError("PEEKLOCK_BIN does not name the broker to test; run `cargo xtask test --only python`")
        command = [binary, "serve", "--data", str(self.folder / "data"), *self.places, *self.arguments]
        environment = os.environ | self.environment
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        self.labels = self._read_labels()
        self.clock = Clock(self.labels["Test clock"])
        return self

    def stop(self):
        """Sends SIGTERM. A broker that does not stop in time is killed, and the call raises an error."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"the broker did not stop within {STOP_TIMEOUT_SECONDS} s of SIGTERM") from None

    def kill(self):
        self.process.kill()
        self.process.wait()

    @property
    def log_path(self):
        return self.folder / "broker.log"

    @property
    def address(self):
        return self.labels["AMQP"]

    @property
    def tls_address(self):
        return self.labels["AMQP over TLS"]

    @property
    def http_address(self):
        return self.labels["HTTP"]

    @property
    def https_address(self):
        return self.labels["HTTPS"]

    @property
    def certificate(self):
        return self.labels["Certificate"]

    @property
    def connection_string(self):
        """Returns the printed connection string, or one with the test key if keys are configured, because the broker
        masks those.
        """
        return self.connection_string_of(KEY_NAME, KEY) if self.keys else self.labels["Connection string"]

    def connection_string_of(self, key_name, key, address=None):
        return connection_string(address or self.address, key_name, key)

    @property
    def storage_connection_string(self):
        """Returns the printed connection string, with the configured key in place of the asterisks."""
        return self.labels["Storage string"].replace("AccountKey=***", f"AccountKey={self.storage_key}")

    def _read_labels(self):
        lines = queue.Queue()
        threading.Thread(target=pass_lines, args=(self.process.stdout, lines), daemon=True).start()
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        labels = {}
        while "Ready" not in labels:
            try:
                line = lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                self.kill()
                raise RuntimeError(f"the broker is not ready; it printed {labels} and logged:\n{self._log_tail()}")
            label, _, value = line.partition("  ")
            labels[label] = value.strip()
        return labels

    def _log_tail(self):
        return self.log_path.read_text(errors="replace")[-4000:]


class QueuePool:
    """A stock of queues of each kind. Queues are declared when the broker starts, so each test takes unused ones."""

    KINDS = {
        "plain": "",
        "count2": ",max-delivery=2",
        "count3": ",max-delivery=3",
    }
    STOCK = 120

    def __init__(self):
        self.numbers = {kind: itertools.count() for kind in self.KINDS}

    @classmethod
    def declarations(cls):
        return [f"{kind}-{number}{settings}" for kind, settings in cls.KINDS.items() for number in range(cls.STOCK)]

    def take(self, kind="plain"):
        number = next(self.numbers[kind])
        assert number < self.STOCK, f"the stock of '{kind}' queues is used up; raise STOCK"
        return f"{kind}-{number}"


def connection_string(address, key_name=KEY_NAME, key=KEY):
    return (
        f"Endpoint=sb://{address};SharedAccessKeyName={key_name};SharedAccessKey={key};UseDevelopmentEmulator=true;"
    )


def options(flag, values):
    return [text for value in values for text in (flag, value)]


def pass_lines(stream, lines):
    """Reads to the end even when the lines are no longer used, because a full pipe would block the broker."""
    for line in stream:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def free_fixed_port():
    while True:
        port = random.choice(FIXED_PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0 and can_bind(port):
                return port


def can_bind(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
