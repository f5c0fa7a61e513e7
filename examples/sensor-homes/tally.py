"""The aggregates of one partition, and the files that store them.

A file contains all aggregates of the events up to one sequence number, and that number is its name. Events of a
partition have one order, so all consumers that count up to the same number write the same file: a late write of a
consumer that has lost the partition without noticing does no harm. The file with the highest number is
authoritative.
"""

import json
import os
import pathlib
import uuid

NOTHING = -1


class Tally:
    def __init__(self, folder, partition):
        self.folder = pathlib.Path(folder) / f"partition-{partition}"
        self.folder.mkdir(parents=True, exist_ok=True)
        # By home, minute and kind: the number of readings, their sum, the minimum and the maximum.
        self.homes = {}
        self.number = self.written = self.load()

    def load(self):
        """Loads the newest file. Returns the number up to which it counts."""
        while True:
            number = max(self.numbers(), default=NOTHING)
            try:
                self.homes = json.loads(self.path(number).read_text()) if number > NOTHING else {}
                return number
            except FileNotFoundError:
                # Another consumer has written the next file meanwhile, and removed this one.
                continue

    def add(self, number, report):
        """Counts an event, unless it is already counted. A missing event before it would be lost for good, so that is
        an error.
        """
        if number <= self.number:
            return
        if number != self.number + 1:
            raise ValueError(f"event {number} follows {self.number} in {self.folder.name}: what is between them is lost")
        minutes = self.homes.setdefault(report["home"], {})
        kinds = minutes.setdefault(str(report["minute"]), {})
        for kind, value in report["readings"].items():
            count, total, least, greatest = kinds.get(kind, (0, 0, value, value))
            kinds[kind] = (count + 1, total + value, min(least, value), max(greatest, value))
        self.number = number

    def write(self):
        """Writes the file atomically."""
        if self.number == self.written:
            return
        half = self.folder / f"{uuid.uuid4()}.half"
        half.write_text(json.dumps(self.homes))
        os.replace(half, self.path(self.number))
        self.written = self.number
        for number in self.numbers():
            if number < self.written:
                self.path(number).unlink(missing_ok=True)

    def numbers(self):
        return [int(path.stem) for path in self.folder.glob("*.json")]

    def path(self, number):
        return self.folder / f"{number:012}.json"
