"""Partitioned consumers from start to end: a hundred thousand homes send the readings of their sensors, and consumers
that start, stop and are killed add them up by home and minute.

Ends by proving that every reading was counted, and none twice.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import uuid

from azure.eventhub import EventHubConsumerClient
from azure.storage.blob import ContainerClient

from consumer import GROUP
from homes import PARTITION_COUNT, REPORT_COUNT, minute_of, name, readings
from tally import Tally

FOLDER = pathlib.Path(__file__).parent
PATIENCE_SECONDS = 300


class Consumer:
    """A consumer process. All consumers report to one list."""

    def __init__(self, name, arguments, news):
        self.name = name
        command = [sys.executable, str(FOLDER / "consumer.py"), *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, args=(news,), daemon=True).start()

    def listen(self, news):
        for line in self.process.stdout:
            news.append((self.name, *line.rstrip("\n").split("\t")))

    def kill(self):
        """Kills the process like a power cut: nothing is closed."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)


class Story:
    def __init__(self, connection_string, storage, hub, folder, home_count):
        self.connection_string = connection_string
        self.hub = hub
        self.home_count = home_count
        self.folder = folder
        container = f"checkpoints-{uuid.uuid4()}"
        ContainerClient.from_connection_string(storage, container).create_container()
        self.arguments = [connection_string, storage, container, hub, str(folder)]
        self.news = []
        self.consumers = {}

    def tell(self):
        started = time.monotonic()
        try:
            self.act()
        finally:
            for consumer in self.consumers.values():
                consumer.stop()
        self.prove(time.monotonic() - started)

    def act(self):
        print(f"{self.home_count:,} homes. Anna and Bert start, and every home sends its first report.")
        self.start("anna", "bert")
        self.wait_for("anna and bert have claimed partitions", lambda: self.claims("anna") and self.claims("bert"))
        self.report(0).wait()

        print("Carl joins while the second report comes: partitions move to him.")
        report = self.report(1)
        self.start("carl")
        self.wait_for("carl has partitions", lambda: self.claims("carl"))
        report.wait()

        print("Bert is killed while the third report comes: after a while the others take his partitions over.")
        report = self.report(2)
        self.consumers.pop("bert").kill()
        bereft = self.owned_last("bert")
        report.wait()
        moved = lambda: bereft <= self.owned_last("anna") | self.owned_last("carl")  # noqa: E731
        self.wait_for(f"bert's {len(bereft)} partitions are taken over", moved)

        print("Dora joins and Anna is sent home while the last report comes: she writes what she has and hands over.")
        report = self.report(3)
        self.start("dora")
        self.consumers.pop("anna").stop()
        self.wait_for("dora has partitions", lambda: self.claims("dora"))
        report.wait()
        ends = self.ends()
        self.wait_for("all partitions are counted to their end", lambda: self.written() == ends)

    def start(self, *names):
        for name in names:
            self.consumers[name] = Consumer(name, self.arguments, self.news)

    def report(self, number):
        """Sends one report of every home; returns the sending process."""
        command = [sys.executable, str(FOLDER / "send_readings.py"), self.connection_string, self.hub, str(self.home_count), str(number)]
        return Sending(subprocess.Popen(command))

    def wait_for(self, what, condition):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            for _, *words in self.told("error"):
                assert "ValueError" not in words, f"a consumer reported: {words}"
            assert time.monotonic() < deadline, f"timed out after {PATIENCE_SECONDS} s waiting until {what}"
            time.sleep(0.1)
        print(f"  {what}")

    def told(self, what, name=None):
        return [item for item in list(self.news) if item[1] == what and name in (None, item[0])]

    def claims(self, name):
        return {item[2] for item in self.told("claim", name)}

    def owned_last(self, name):
        """Returns the partitions that this consumer was the last to claim."""
        owners = {item[2]: item[0] for item in self.told("claim")}
        return {partition for partition, owner in owners.items() if owner == name}

    def ends(self):
        """Returns the last sequence number of each partition, from the hub."""
        create = EventHubConsumerClient.from_connection_string
        with create(self.connection_string, GROUP, eventhub_name=self.hub) as client:
            of = lambda partition: client.get_partition_properties(partition)["last_enqueued_sequence_number"]  # noqa: E731
            return {partition: of(partition) for partition in client.get_partition_ids()}

    def written(self):
        """Returns the numbers up to which the files count."""
        folders = self.folder.glob("partition-*")
        found = {folder.name.removeprefix("partition-"): [int(path.stem) for path in folder.glob("*.json")] for folder in folders}
        return {partition: max(numbers, default=-1) for partition, numbers in found.items()}

    def prove(self, seconds):
        found = {}
        for partition in range(PARTITION_COUNT):
            for home, minutes in Tally(self.folder, partition).homes.items():
                assert home not in found, f"{home} was counted in two partitions"
                found[home] = minutes
        expected, reading_count = expectation(self.home_count)
        assert expected == found, difference(expected, found)
        moves = len(self.told("claim")) - PARTITION_COUNT
        events = self.home_count * REPORT_COUNT
        print(f"Each of {reading_count:,} readings in {events:,} events was counted, and none twice; partitions changed hands {moves} times.")
        print(f"It took {seconds:.0f} s. The sums by home and minute are in {self.folder}.")


class Sending:
    def __init__(self, process):
        self.process = process

    def wait(self):
        assert self.process.wait(PATIENCE_SECONDS) == 0, "the sender failed"


def expectation(home_count):
    """Returns the expected sums, and the number of readings in them."""
    homes, reading_count = {}, 0
    for home in range(home_count):
        minutes = homes[name(home)] = {}
        for report in range(REPORT_COUNT):
            for kind, value in readings(home, report).items():
                minutes.setdefault(str(minute_of(report)), {}).setdefault(kind, []).append(value)
                reading_count += 1
        for kinds in minutes.values():
            kinds.update({kind: [len(values), sum(values), min(values), max(values)] for kind, values in kinds.items()})
    return homes, reading_count


def difference(expected, found):
    missing = [home for home in expected if home not in found]
    wrong = [home for home in expected if home in found and expected[home] != found[home]]
    return f"{len(missing)} homes are missing, such as {missing[:3]}; {len(wrong)} are wrong, such as {[(h, found[h]) for h in wrong[:3]]}"


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("connection_string", help="of the namespace with the hub")
    options.add_argument("storage", help="connection string of the storage account for the checkpoints")
    options.add_argument("hub", help=f"a hub with {PARTITION_COUNT} partitions that nobody has used yet")
    options.add_argument("--homes", type=int, default=100_000)
    options.add_argument("--out", type=pathlib.Path, help="where to put the sums; a new folder if not given")
    given = options.parse_args()
    folder = given.out or pathlib.Path(tempfile.mkdtemp(prefix="sensor-homes-"))
    Story(given.connection_string, given.storage, given.hub, folder, given.homes).tell()
