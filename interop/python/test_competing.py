"""Several consumers share the work of one queue, and no message is delivered to two of them."""

import asyncio
import threading

from azure.servicebus import ServiceBusMessage, aio

import flavour as flavours
from steps import RECEIVE_TIMEOUT_SECONDS, assert_empty, receive, send, text

MESSAGE_COUNT = 300


def test_two_receivers_share_a_queue(flavour, broker, queue):
    with flavour.client(broker.connection_string) as client:
        sent = {f"job {number}" for number in range(MESSAGE_COUNT)}
        send(client, queue, *sent)
        results = [[], []]
        # Each worker has a message before any takes the rest, so that a late start does not leave one without a share.
        start = threading.Barrier(len(results))
        workers = [threading.Thread(target=work, args=(flavour, broker, queue, start, results, result)) for result in results]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert sorted(results[0] + results[1]) == sorted(sent)
        assert results[0] and results[1], "one receiver got all messages"
        assert_empty(client, queue)


def work(flavour, broker, queue, start, results, result):
    with flavour.client(broker.connection_string) as client:
        with client.get_queue_receiver(queue) as receiver:
            messages = receive(receiver, 10)
            start.wait(RECEIVE_TIMEOUT_SECONDS)
            while messages or sum(map(len, results)) < MESSAGE_COUNT:
                for message in messages:
                    result.append(text(message))
                    receiver.complete_message(message)
                messages = receiver.receive_messages(max_message_count=10, max_wait_time=1)


async def test_tasks_of_one_asyncio_client_share_a_queue(broker, queue):
    create = aio.ServiceBusClient.from_connection_string
    async with create(broker.connection_string, **flavours.CLIENT_OPTIONS) as client:
        sent = [f"job {number}" for number in range(MESSAGE_COUNT)]
        async with client.get_queue_sender(queue) as sender:
            halves = [sent[::2], sent[1::2]]
            await asyncio.gather(*[sender.send_messages([ServiceBusMessage(job) for job in half]) for half in halves])
        got = await asyncio.gather(*[work_as_task(client, queue) for _ in range(3)])
        assert sorted(sum(got, [])) == sorted(sent)


async def work_as_task(client, queue):
    result = []
    async with client.get_queue_receiver(queue, prefetch_count=5, max_wait_time=6) as receiver:
        async for message in receiver:
            result.append(text(message))
            await receiver.complete_message(message)
    return result
