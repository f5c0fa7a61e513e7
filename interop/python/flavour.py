"""The synchronous and the asyncio Python SDK behind one interface: each scenario is written once and runs on both."""

import asyncio
import concurrent.futures
import functools
import inspect
import threading

from azure import eventhub, servicebus
from azure.core.async_paging import AsyncItemPaged
from azure.eventhub import aio as eventhub_aio
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
from azure.eventhub.extensions.checkpointstoreblobaio import BlobCheckpointStore as AsyncBlobCheckpointStore
from azure.servicebus import aio
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient
from azure.storage import queue as storage_queue
from azure.storage.queue import aio as storage_queue_aio

# The delays between retries have the shape of the SDK's defaults but are shorter, so that a rejected call fails soon.
CLIENT_OPTIONS = {"retry_backoff_factor": 0.1}
ADMIN_OPTIONS = {"retry_total": 0}
DEFAULT_GROUP = "$Default"
END_TIMEOUT_SECONDS = 30


class Sync:
    def client(self, connection_string, **options):
        return servicebus.ServiceBusClient.from_connection_string(connection_string, **(CLIENT_OPTIONS | options))

    def admin(self, connection_string, **options):
        create = ServiceBusAdministrationClient.from_connection_string
        return create(connection_string, **(ADMIN_OPTIONS | options))

    def lock_renewer(self, **options):
        return servicebus.AutoLockRenewer(**options)

    def producer(self, connection_string, hub, **options):
        create = eventhub.EventHubProducerClient.from_connection_string
        return create(connection_string, eventhub_name=hub, **(CLIENT_OPTIONS | options))

    def consumer(self, connection_string, hub, group=DEFAULT_GROUP, **options):
        create = eventhub.EventHubConsumerClient.from_connection_string
        return create(connection_string, group, eventhub_name=hub, **(CLIENT_OPTIONS | options))

    def checkpoint_store(self, connection_string, container, **options):
        return BlobCheckpointStore.from_connection_string(connection_string, container, **options)

    def storage_queues(self, connection_string, **options):
        return storage_queue.QueueServiceClient.from_connection_string(connection_string, **(ADMIN_OPTIONS | options))

    def callback(self, function):
        return function

    def in_background(self, method, **options):
        """Starts the call in a thread. Returns a function that waits for its end."""
        thread = threading.Thread(target=method, kwargs=options, daemon=True)
        thread.start()
        return lambda: thread.join(END_TIMEOUT_SECONDS)

    def close(self):
        pass


class Asyncio:
    """Runs the asyncio SDK on a loop in a separate thread. The test calls it like the synchronous one."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def client(self, connection_string, **options):
        create = aio.ServiceBusClient.from_connection_string
        return self.call(create, connection_string, **(CLIENT_OPTIONS | options))

    def admin(self, connection_string, **options):
        create = AsyncAdministrationClient.from_connection_string
        return self.call(create, connection_string, **(ADMIN_OPTIONS | options))

    def lock_renewer(self, **options):
        return self.call(aio.AutoLockRenewer, **options)

    def producer(self, connection_string, hub, **options):
        create = eventhub_aio.EventHubProducerClient.from_connection_string
        return self.call(create, connection_string, eventhub_name=hub, **(CLIENT_OPTIONS | options))

    def consumer(self, connection_string, hub, group=DEFAULT_GROUP, **options):
        create = eventhub_aio.EventHubConsumerClient.from_connection_string
        return self.call(create, connection_string, group, eventhub_name=hub, **(CLIENT_OPTIONS | options))

    def checkpoint_store(self, connection_string, container, **options):
        return self.call(AsyncBlobCheckpointStore.from_connection_string, connection_string, container, **options)

    def storage_queues(self, connection_string, **options):
        create = storage_queue_aio.QueueServiceClient.from_connection_string
        return self.call(create, connection_string, **(ADMIN_OPTIONS | options))

    def callback(self, function):
        """Returns an awaitable callback, which the asyncio SDK requires."""

        async def call(*args):
            function(*args)

        return call

    def in_background(self, method, **options):
        """Starts the call on the loop. Returns a function that cancels it, because a closed SDK client would sleep
        until its next check of the owners.
        """
        call = asyncio.run_coroutine_threadsafe(method.args[0](**options), self.loop)

        def end():
            call.cancel()
            concurrent.futures.wait([call], END_TIMEOUT_SECONDS)

        return end

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def call(self, function, *args, **kwargs):
        """Calls the function on the loop, because some constructors require a running loop, and awaits an awaitable
        result.
        """
        args = [unbridged(value) for value in args]
        kwargs = {name: unbridged(value) for name, value in kwargs.items()}

        async def invoke():
            result = function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return self.bridged(asyncio.run_coroutine_threadsafe(invoke(), self.loop).result())

    def bridged(self, value):
        return Bridged(value, self) if isinstance(value, BRIDGED_TYPES) else value


BRIDGED_TYPES = (
    aio.ServiceBusClient,
    aio.ServiceBusSender,
    aio.ServiceBusReceiver,
    aio.ServiceBusSession,
    aio.AutoLockRenewer,
    AsyncAdministrationClient,
    AsyncItemPaged,
    eventhub_aio.EventHubProducerClient,
    eventhub_aio.EventHubConsumerClient,
    AsyncBlobCheckpointStore,
    storage_queue_aio.QueueServiceClient,
    storage_queue_aio.QueueClient,
)


class Bridged:
    """An object of the asyncio SDK whose methods can be called from any thread."""

    def __init__(self, target, flavour):
        self._target = target
        self._flavour = flavour

    def __getattr__(self, name):
        value = getattr(self._target, name)
        return functools.partial(self._flavour.call, value) if callable(value) else self._flavour.bridged(value)

    def __enter__(self):
        self._flavour.call(self._target.__aenter__)
        return self

    def __exit__(self, *details):
        self._flavour.call(self._target.__aexit__, *details)

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return self._flavour.call(self._target.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None


def unbridged(value):
    return value._target if isinstance(value, Bridged) else value
