"""A broker for the duration of the story, and its four queues. They differ only in the policy that selects the next
message.
"""

import contextlib
import pathlib
import signal
import subprocess
import tempfile

POLICIES = ["fifo", "strict", "aged", "weighted"]
# The most urgent first. The AMQP header has priorities from 0 to 9, as in JMS; the default is 4.
PRIORITIES = {"high": "7-9", "normal": "4-6", "low": "0-3"}
WEIGHTS = {"high": 6, "normal": 3, "low": 1}
# The head start of high over each class, as a share of the run: how much later a high message may arrive and still be
# first.
OFFSETS = {"high": 0, "normal": 1 / 20, "low": 1 / 6}
STOP_SECONDS = 20


def offset(name, seconds):
    return OFFSETS[name] * seconds


def create_command(policy, seconds):
    """Returns the command that creates a queue. Offsets are short, so that a run of a minute shows the effect of hours.
    """
    words = ["queue", "create", policy, "--order", policy]
    for name, priorities in PRIORITIES.items():
        settings = {"aged": f",offset={written(offset(name, seconds))}", "weighted": f",weight={WEIGHTS[name]}"}
        words += ["--class", f"{name}={priorities}{settings.get(policy, '')}"]
    return words


def written(seconds):
    return f"{seconds:.0f}s" if seconds == round(seconds) else f"{seconds * 1000:.0f}ms"


@contextlib.contextmanager
def broker(program, seconds):
    """Provides the connection string of a broker with the four queues, and removes the broker afterwards."""
    with tempfile.TemporaryDirectory(prefix="priority-classes-") as folder:
        process = start(program, folder)
        try:
            connection_string = wait_until_ready(process)
            for policy in POLICIES:
                words = create_command(policy, seconds)
                print(f"  peeklock {' '.join(words)}")
                subprocess.run([program, *words, "--connect", connection_string], check=True, stdout=subprocess.DEVNULL)
            yield connection_string
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS)


def start(program, folder):
    places = ["--listen", "127.0.0.1:0", "--listen-tls", "off", "--http", "off", "--https", "off"]
    places += ["--blob-port", "off", "--queue-port", "off"]
    command = [program, "serve", "--data", str(pathlib.Path(folder) / "data"), *places]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder)


def wait_until_ready(process):
    labels = {}
    while "Ready" not in labels:
        line = process.stdout.readline()
        assert line, f"the broker ended before it was ready; it printed {labels}"
        label, _, value = line.partition("  ")
        labels[label.strip()] = value.strip()
    return labels["Connection string"]
