"""The unmodified checkpoint store of the SDK: each claim has one winner, and all data survives a restart."""

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore
from azure.storage.blob import BlobServiceClient, ContainerClient

from broker import Broker
from names import fresh

HUB = {"fully_qualified_namespace": "LocalHost", "eventhub_name": "Readings", "consumer_group": "$Default"}
PLACE = tuple(HUB.values())


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    broker = Broker(tmp_path_factory.mktemp("storage"), blob_port="127.0.0.1:0").start()
    yield broker
    broker.stop()


@pytest.fixture
def container(storage):
    name = fresh("container")
    ContainerClient.from_connection_string(storage.storage_connection_string, name).create_container()
    return name


@pytest.fixture
def store(flavour, storage, container):
    with flavour.checkpoint_store(storage.storage_connection_string, container, retry_total=0) as store:
        yield store


def ownership(partition, owner, **rest):
    return HUB | {"partition_id": partition, "owner_id": owner} | rest


def owners(store):
    return {item["partition_id"]: item["owner_id"] for item in store.list_ownership(*PLACE)}


def test_a_claim_has_one_winner(store):
    [first] = store.claim_ownership([ownership("0", "anna")])
    assert store.claim_ownership([ownership("0", "bert")]) == [], "a claimed partition was claimed again"
    assert owners(store) == {"0": "anna"}
    [renewed] = store.claim_ownership([first])
    assert renewed["etag"] != first["etag"]
    [stolen] = store.claim_ownership([dict(renewed, owner_id="bert")])
    assert owners(store) == {"0": "bert"}
    assert store.claim_ownership([dict(renewed, owner_id="anna", etag='"0x0"')]) == [], "a stale etag must not win"
    store.claim_ownership([dict(stolen, owner_id="")])
    assert not owners(store)["0"], "the claim was not given up"


def test_many_partitions_are_claimed_at_once(store):
    claims = [ownership(str(number), "anna") for number in range(20)]
    assert len(store.claim_ownership(claims)) == 20
    assert owners(store) == {str(number): "anna" for number in range(20)}
    assert list(store.list_ownership("localhost", "readings", "other")) == []


def test_the_last_checkpoint_of_each_partition_is_kept(store):
    for number in (7, 8, 9):
        store.update_checkpoint(HUB | {"partition_id": "3", "offset": str(number), "sequence_number": number})
    store.update_checkpoint(HUB | {"partition_id": "4", "offset": "0", "sequence_number": 0})
    found = {item["partition_id"]: (item["offset"], item["sequence_number"]) for item in store.list_checkpoints(*PLACE)}
    assert found == {"3": ("9", 9), "4": ("0", 0)}
    assert owners(store) == {}, "a checkpoint must not be a claim"


def test_a_container_is_created_once(storage, container):
    client = ContainerClient.from_connection_string(storage.storage_connection_string, container)
    with pytest.raises(ResourceExistsError) as refused:
        client.create_container()
    assert refused.value.error_code == "ContainerAlreadyExists"
    assert client.exists()


def test_a_missing_container_is_not_found(flavour, storage):
    with flavour.checkpoint_store(storage.storage_connection_string, "no-such-container", retry_total=0) as store:
        with pytest.raises(HttpResponseError) as refused:
            list(store.list_ownership(*PLACE))
    assert refused.value.error_code == "ContainerNotFound"


def test_a_wrong_key_is_rejected(storage, container):
    place = storage.storage_connection_string.replace("AccountKey=", "AccountKey=AAAA")
    with pytest.raises(ClientAuthenticationError) as refused:
        ContainerClient.from_connection_string(place, container, retry_total=0).get_container_properties()
    assert refused.value.status_code == 403


def test_an_unsupported_call_is_rejected(storage, container):
    client = BlobServiceClient.from_connection_string(storage.storage_connection_string, retry_total=0)
    blob = client.get_blob_client(container, "log")
    for call in (blob.create_append_blob, blob.create_snapshot, blob.acquire_lease):
        with pytest.raises(HttpResponseError) as refused:
            call()
        assert refused.value.status_code >= 400 and refused.value.error_code, call


def test_claims_and_checkpoints_survive_a_restart(tmp_path):
    broker = Broker(tmp_path, blob_port="127.0.0.1:0").start()
    try:
        ContainerClient.from_connection_string(broker.storage_connection_string, "kept").create_container()
        store = BlobCheckpointStore.from_connection_string(broker.storage_connection_string, "kept")
        [claimed] = store.claim_ownership([ownership("0", "anna")])
        store.update_checkpoint(HUB | {"partition_id": "0", "offset": "5", "sequence_number": 5})
        broker.kill()
        broker.start()
        store = BlobCheckpointStore.from_connection_string(broker.storage_connection_string, "kept")
        [found] = store.list_ownership(*PLACE)
        # A listing contains etags without quotes, as the service's does.
        assert (found["owner_id"], found["etag"].strip('"')) == ("anna", claimed["etag"].strip('"'))
        [checkpoint] = store.list_checkpoints(*PLACE)
        assert (checkpoint["offset"], checkpoint["sequence_number"]) == ("5", 5)
    finally:
        broker.stop()
