"""Sends one report of every home: a batch for each street, with the street as partition key.

All reports of a home are therefore in one partition, and the reader of the partition can add them up alone.
"""

import json
import sys

from azure.eventhub import EventData, EventHubProducerClient

from homes import minute_of, name, readings, streets


def event(home, report):
    body = {"home": name(home), "minute": minute_of(report), "readings": readings(home, report)}
    return EventData(json.dumps(body))


def send(connection_string, hub, home_count, report):
    with EventHubProducerClient.from_connection_string(connection_string, eventhub_name=hub) as producer:
        for street, homes in streets(home_count):
            batch = producer.create_batch(partition_key=street)
            for home in homes:
                batch.add(event(home, report))
            producer.send_batch(batch)


if __name__ == "__main__":
    connection_string, hub, home_count, report = sys.argv[1:]
    send(connection_string, hub, int(home_count), int(report))
