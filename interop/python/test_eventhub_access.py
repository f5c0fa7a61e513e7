"""Keys of a hub, and transports other than plain AMQP."""

import pytest
from azure.eventhub import EventData, TransportType
from azure.eventhub.exceptions import AuthenticationError, EventHubError

from broker import KEY, KEY_NAME, connection_string
from hubs import bodies, publish, read, refusal


@pytest.fixture
def policy(api, broker, hub):
    """Creates a policy of the hub. Returns a connection string with its key."""

    def make(*rights):
        name = f"may-{'-'.join(rights)}"
        api.put("hubs", hub, "policies", name, rights=list(rights))
        return broker.connection_string_of(name, api.get("hubs", hub, "policies", name)["primaryKey"])

    return make


def test_a_key_permits_exactly_its_rights(flavour, hub, hubs, policy):
    sender, listener = policy("Send"), policy("Listen")
    with flavour.producer(sender, hub, retry_total=0) as producer:
        publish(producer, "allowed")
    assert bodies(read(flavour, listener, hub, 1)) == ["allowed"]
    with flavour.producer(listener, hub, retry_total=0) as producer:
        assert producer.get_partition_ids() == ["0"]
        with pytest.raises(EventHubError):
            publish(producer, "forbidden")
    with flavour.producer(sender, hubs.create(), retry_total=0) as producer:
        with pytest.raises(EventHubError):
            publish(producer, "elsewhere")
    refusal(sender, hub)


def test_a_wrong_key_is_rejected(flavour, broker, hub):
    with flavour.producer(broker.connection_string_of(KEY_NAME, "not the key"), hub, retry_total=0) as producer:
        with pytest.raises(AuthenticationError, match="(?s)401.*the signature does not fit"):
            publish(producer, "never")
        with pytest.raises(EventHubError):
            producer.get_eventhub_properties()


def ways(broker):
    plain = connection_string("localhost")
    secure = f"Endpoint=sb://localhost/;SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY}"
    websocket = {"transport_type": TransportType.AmqpOverWebsocket}
    trusted = {"connection_verify": broker.certificate}
    yield plain, websocket | {"custom_endpoint_address": f"sb://{broker.http_address}"}
    yield secure, websocket | trusted | {"custom_endpoint_address": f"sb://{broker.tls_address}"}


def test_events_are_sent_and_read_over_websockets(flavour, broker, hub):
    for count, (place, options) in enumerate(ways(broker), start=1):
        with flavour.producer(place, hub, **options) as producer:
            producer.send_event(EventData(b"x" * 500_000))
            assert producer.get_partition_properties("0")["last_enqueued_sequence_number"] == count - 1
        events = read(flavour, place, hub, count, client_options=options)
        assert all(len(event.body_as_str()) == 500_000 for event in events)
