"""One of many consumers that compete for the orders of a queue.

It processes ten messages at a time and completes each explicitly. A failed message is abandoned, so that another
worker (or this one) retries it, until the maximum delivery count is reached and the queue dead-letters it. `pause`
and `resume` on the input close and open a gate before the next message; SIGTERM or Ctrl-C finishes the messages in
progress. A killed worker loses nothing: its locks expire.
"""

import asyncio
import json
import signal
import sys

from azure.servicebus.aio import AutoLockRenewer, ServiceBusClient
from azure.servicebus.exceptions import MessageLockLostError

CONCURRENT_CALLS = 10
WAIT_SECONDS = 1
WORK_SECONDS = 0.05
RENEWAL_SECONDS = 60


class Pump:
    def __init__(self, receiver, renewer):
        self.receiver = receiver
        self.renewer = renewer
        self.gate = asyncio.Event()
        self.gate.set()
        self.stopping = False
        self.running = set()

    async def run(self):
        while not self.stopping:
            await self.gate.wait()
            free = CONCURRENT_CALLS - len(self.running)
            if free == 0:
                await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)
                continue
            for message in await self.receiver.receive_messages(max_message_count=free, max_wait_time=WAIT_SECONDS):
                self.renewer.register(self.receiver, message, max_lock_renewal_duration=RENEWAL_SECONDS)
                call = asyncio.create_task(self.call(message))
                self.running.add(call)
                call.add_done_callback(self.running.discard)
        await asyncio.gather(*self.running)

    async def call(self, message):
        try:
            await work_on(message)
            await self.receiver.complete_message(message)
        except MessageLockLostError:
            say("late", message.message_id)
        except Exception as error:
            await self.on_error(message, error)

    async def on_error(self, message, error):
        say("failed", message.message_id, f"delivery {message.delivery_count + 1}: {error}")
        await self.receiver.abandon_message(message)

    def stop(self):
        self.stopping = True
        self.gate.set()

    def obey(self, command):
        if command == "pause":
            self.gate.clear()
        elif command == "resume":
            self.gate.set()
        say(command)


async def work_on(message):
    order = json.loads(str(message))
    await asyncio.sleep(WORK_SECONDS)
    if not isinstance(order["amount"], int):
        raise ValueError(f"the amount {order['amount']!r} is not a number")
    # The result is reported before the message is completed: if the worker dies in between, the order is repeated, not
    # lost.
    say("done", order["order"])


def say(*words):
    # One write per line, so that a killed worker does not leave half a line.
    print("\t".join(words), flush=True)


def listen(loop, pump):
    line = sys.stdin.readline()
    if line:
        pump.obey(line.strip())
    else:
        loop.remove_reader(sys.stdin)


async def main(connection_string, queue):
    async with ServiceBusClient.from_connection_string(connection_string) as client, AutoLockRenewer() as renewer:
        async with client.get_queue_receiver(queue) as receiver:
            pump = Pump(receiver, renewer)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, pump.stop)
            loop.add_reader(sys.stdin, listen, loop, pump)
            await pump.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
