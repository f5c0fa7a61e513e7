"""A pool of workers on one subscription. Only its size determines how fast its priority is served.

Each worker takes one message at a time, so no message waits at a busy worker. SIGTERM or Ctrl-C finishes the
messages in progress.
"""

import asyncio
import datetime
import signal
import sys

from azure.servicebus.aio import ServiceBusClient

WAIT_SECONDS = 1
WORK_SECONDS = 0.02


class Pool:
    def __init__(self, receivers):
        self.receivers = receivers
        self.stopping = False

    async def run(self):
        await asyncio.gather(*(self.work(receiver) for receiver in self.receivers))

    async def work(self, receiver):
        while not self.stopping:
            for message in await receiver.receive_messages(max_message_count=1, max_wait_time=WAIT_SECONDS):
                await work_on(message)
                await receiver.complete_message(message)

    def stop(self):
        self.stopping = True


async def work_on(message):
    waited = datetime.datetime.now(datetime.timezone.utc) - message.enqueued_time_utc
    await asyncio.sleep(WORK_SECONDS)
    priority = message.application_properties[b"Priority"].decode()
    say("done", message.message_id, priority, f"{waited.total_seconds():.3f}")


def say(*words):
    print("\t".join(words), flush=True)


async def main(connection_string, topic, subscription, size):
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        receivers = [client.get_subscription_receiver(topic, subscription) for _ in range(int(size))]
        pool = Pool(receivers)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, pool.stop)
        for receiver in receivers:
            # Opens the link, so that the worker is ready when the first order arrives.
            await receiver.peek_messages()
        say("ready")
        await pool.run()
        for receiver in receivers:
            await receiver.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
