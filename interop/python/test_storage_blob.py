"""Blobs with azure-storage-blob: the supported calls beyond those of the checkpoint stores, and their limits."""

import base64
import datetime
import hashlib
import uuid

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import (
    AccountSasPermissions,
    BlobBlock,
    BlobLeaseClient,
    BlobSasPermissions,
    BlobServiceClient,
    ContainerSasPermissions,
    ContentSettings,
    ResourceTypes,
    generate_account_sas,
    generate_blob_sas,
    generate_container_sas,
)

from broker import Broker
from names import fresh

HASTY = {"retry_total": 0}
STORAGE_KEY = "bm90IHRoZSB3ZWxsLWtub3duIG9uZQ=="


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """A broker with its own keys for messaging and for storage."""
    folder = tmp_path_factory.mktemp("storage")
    broker = Broker(folder, keys=["app=secret:Send"], blob_port="127.0.0.1:0", storage_key=STORAGE_KEY).start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def service(storage):
    with BlobServiceClient.from_connection_string(storage.storage_connection_string, **HASTY) as service:
        yield service


@pytest.fixture
def container(service):
    return service.create_container(fresh("container"))


def in_an_hour():
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)


def test_containers_are_created_listed_and_deleted(service):
    names = sorted(fresh("listed") for _ in range(3))
    for name in names:
        service.create_container(name, metadata={"MadeBy": "test"})
    pages = service.list_containers(name_starts_with="listed", include_metadata=True, results_per_page=2).by_page()
    pages = [[(found.name, found.metadata) for found in page] for page in pages]
    assert [len(page) for page in pages] == [2, 1]
    assert [name for page in pages for name, _ in page] == names
    assert pages[0][0][1] == {"MadeBy": "test"}
    found = service.get_container_client(names[0]).get_container_properties()
    assert found.metadata == {"MadeBy": "test"} and found.etag and found.last_modified
    for name in names:
        service.delete_container(name)
    with pytest.raises(ResourceNotFoundError) as refused:
        service.delete_container(names[0])
    assert refused.value.error_code == "ContainerNotFound"


@pytest.mark.parametrize("name", ["plain", "ns/hub/$default/ownership/0", "ä ö&<>'\"+%20?#", "a//b"])
def test_a_blob_can_have_any_name(container, name):
    blob = container.get_blob_client(name)
    blob.upload_blob(b"content", metadata={"n": "1"})
    assert [found.name for found in container.list_blobs()] == [name]
    assert blob.download_blob().readall() == b"content"
    blob.delete_blob()
    assert not blob.exists()


def test_metadata_is_returned_as_written(container):
    metadata = {"a1": "1", "a_1": "2", "ab": "3", "A_b": "x=y; z, \"q\" <&> ~", "latin": "é ß", "empty": ""}
    blob = container.get_blob_client("metadata")
    blob.upload_blob(b"", metadata=metadata)
    assert blob.get_blob_properties().metadata == metadata
    [listed] = container.list_blobs(include=["metadata"])
    assert {name: value or "" for name, value in listed.metadata.items()} == metadata
    blob.set_blob_metadata({"only": "this"})
    assert blob.get_blob_properties().metadata == {"only": "this"}
    with pytest.raises(HttpResponseError) as refused:
        blob.set_blob_metadata({"much": "x" * 9000})
    assert (refused.value.status_code, refused.value.error_code) == (400, "MetadataTooLarge")


def test_conditions_are_enforced(container):
    blob = container.get_blob_client("conditions")
    first = blob.upload_blob(b"one")["etag"]
    with pytest.raises(ResourceExistsError) as refused:
        blob.upload_blob(b"two")
    assert refused.value.error_code == "BlobAlreadyExists"
    second = blob.set_blob_metadata({"n": "2"}, etag=first, match_condition=MatchConditions.IfNotModified)["etag"]
    assert second != first
    stale = {"etag": first, "match_condition": MatchConditions.IfNotModified}
    for change in (
        lambda: blob.set_blob_metadata({}, **stale),
        lambda: blob.upload_blob(b"x", overwrite=True, **stale),
        lambda: blob.delete_blob(**stale),
        lambda: blob.download_blob(**stale),
    ):
        with pytest.raises(ResourceModifiedError) as refused:
            change()
        assert (refused.value.status_code, refused.value.error_code) == (412, "ConditionNotMet")
    with pytest.raises(HttpResponseError) as refused:
        blob.download_blob(etag=second, match_condition=MatchConditions.IfModified)
    assert refused.value.status_code == 304
    blob.delete_blob(etag=second, match_condition=MatchConditions.IfNotModified)
    with pytest.raises(ResourceNotFoundError) as refused:
        blob.set_blob_metadata({})
    assert refused.value.error_code == "BlobNotFound"
    assert blob.upload_blob(b"again")["etag"] not in (first, second)


def test_content_and_headers_are_returned(container):
    blob = container.get_blob_client("content")
    content = bytes(range(256)) * 256
    settings = ContentSettings(content_type="text/x-own", cache_control="no-store", content_language="de")
    blob.upload_blob(content, content_settings=settings)
    found = blob.get_blob_properties()
    assert (found.size, found.content_settings.content_type) == (len(content), "text/x-own")
    assert (found.content_settings.cache_control, found.content_settings.content_language) == ("no-store", "de")
    assert blob.download_blob().readall() == content
    assert blob.download_blob(offset=10, length=5).readall() == content[10:15]
    assert bytes(found.content_settings.content_md5) == hashlib.md5(content).digest()


def test_a_blob_can_have_four_mebibytes(container):
    """The SDK uploads it in one piece, or in blocks if the length is unknown. A larger blob is rejected."""
    content = bytes(range(256)) * 4096 * 4
    blob = container.get_blob_client("large")
    blob.upload_blob(content, validate_content=True)
    assert blob.download_blob(validate_content=True).readall() == content
    pieces = (content[at : at + 300_000] for at in range(0, len(content), 300_000))
    blob.upload_blob(pieces, overwrite=True, metadata={"by": "blocks"})
    assert blob.download_blob().readall() == content
    with pytest.raises(HttpResponseError) as refused:
        blob.upload_blob(content + b"x", overwrite=True)
    assert refused.value.status_code == 413 and "4194304" in refused.value.message
    found = blob.get_blob_properties()
    assert (found.size, found.metadata) == (len(content), {"by": "blocks"})


def test_a_block_list_determines_the_content(container):
    blob = container.get_blob_client("blocks")
    names = [base64.b64encode(f"{number:04}".encode()).decode() for number in range(3)]
    for name in names:
        blob.stage_block(name, name.encode())
    assert [block.id for block in blob.get_block_list("uncommitted")[1]] == names
    blob.commit_block_list([BlobBlock(names[2]), BlobBlock(names[0])], metadata={"a": "b"})
    assert blob.download_blob().readall() == (names[2] + names[0]).encode()
    assert [block.size for block in blob.get_block_list()[0]] == [len(names[2]), len(names[0])]
    with pytest.raises(HttpResponseError) as refused:
        blob.commit_block_list([BlobBlock(names[1])])
    assert (refused.value.status_code, refused.value.error_code) == (400, "InvalidBlockList")


def refused_with(status, code, call):
    with pytest.raises(HttpResponseError) as refused:
        call()
    assert (refused.value.status_code, refused.value.error_code) == (status, code)


@pytest.mark.parametrize("of", ["blob", "container"])
def test_leases_are_acquired_renewed_changed_released_and_broken(container, of):
    """Covers the five lease calls, on a blob and on its container."""
    blob = container.get_blob_client("leased")
    blob.upload_blob(b"content")
    client = blob if of == "blob" else container
    properties = client.get_blob_properties if of == "blob" else client.get_container_properties
    lease, other = BlobLeaseClient(client, lease_id=str(uuid.uuid4())), BlobLeaseClient(client)
    lease.acquire(lease_duration=15)
    found = properties().lease
    assert (found.status, found.state, found.duration) == ("locked", "leased", "fixed")
    refused_with(409, "LeaseAlreadyPresent", other.acquire)
    lease.renew()
    lease.change(str(uuid.uuid4()))
    refused_with(409, "LeaseIdMismatchWithLeaseOperation", other.renew)
    lease.release()
    assert properties().lease.state == "available"
    lease.acquire(lease_duration=-1)
    assert properties().lease.duration == "infinite"
    assert other.break_lease(lease_break_period=60) in (59, 60)
    refused_with(409, "LeaseIsBreakingAndCannotBeAcquired", lease.acquire)
    assert other.break_lease(lease_break_period=0) == 0
    refused_with(409, "LeaseIsBrokenAndCannotBeRenewed", lease.renew)
    assert properties().lease.state == "broken"
    other.acquire()
    other.release()


def test_a_lease_protects_a_blob(container):
    blob = container.get_blob_client("guarded")
    blob.upload_blob(b"content")
    lease = blob.acquire_lease()
    stranger = str(uuid.uuid4())
    for change in (
        lambda **given: blob.upload_blob(b"x", overwrite=True, **given),
        lambda **given: blob.set_blob_metadata({"a": "b"}, **given),
        lambda **given: blob.stage_block("YQ==", b"x", **given),
        lambda **given: blob.delete_blob(**given),
    ):
        refused_with(412, "LeaseIdMissing", change)
        refused_with(412, "LeaseIdMismatchWithBlobOperation", lambda: change(lease=stranger))
    blob.set_blob_metadata({"owner": "me"}, lease=lease)
    blob.upload_blob(b"mine", overwrite=True, lease=lease)
    assert blob.download_blob(lease=lease).readall() == blob.download_blob().readall() == b"mine"
    [listed] = container.list_blobs()
    assert (listed.lease.status, listed.lease.state, listed.lease.duration) == ("locked", "leased", "infinite")
    blob.delete_blob(lease=lease)


def test_leases_and_large_blobs_survive_restarts(tmp_path):
    """The broker restarts after a crash, which leaves the log, and after an orderly stop, which leaves a snapshot."""
    content = bytes(range(256)) * 4096 * 4
    broker = Broker(tmp_path, blob_port="127.0.0.1:0").start()
    try:
        with BlobServiceClient.from_connection_string(broker.storage_connection_string, **HASTY) as service:
            blob = service.create_container("leases").upload_blob("locks/host", b"")
            lease = blob.acquire_lease(lease_duration=60)
            blob.upload_blob(content, overwrite=True, lease=lease)
        for end in (broker.kill, broker.stop):
            end()
            broker.start()
            with BlobServiceClient.from_connection_string(broker.storage_connection_string, **HASTY) as service:
                blob = service.get_blob_client("leases", "locks/host")
                refused_with(412, "LeaseIdMissing", blob.delete_blob)
                BlobLeaseClient(blob, lease_id=lease.id).renew()
                blob.set_blob_metadata({"FunctionInstance": "one"}, lease=lease.id)
                assert blob.download_blob().readall() == content
    finally:
        broker.stop()


def test_blobs_are_listed_by_prefix_and_page(container):
    for number in range(7):
        container.upload_blob(f"a/{number}", b"")
    container.upload_blob("b/0", b"")
    pages = container.list_blobs(name_starts_with="a/", results_per_page=3).by_page()
    assert [[found.name for found in page] for page in pages] == [["a/0", "a/1", "a/2"], ["a/3", "a/4", "a/5"], ["a/6"]]
    assert list(container.list_blobs(name_starts_with="c")) == []


def test_a_shared_access_signature_permits_its_operations_only(service, container):
    container.upload_blob("seen", b"content")
    names = {"account_name": service.account_name, "account_key": STORAGE_KEY, "expiry": in_an_hour()}
    of_account = generate_account_sas(
        resource_types=ResourceTypes(object=True), permission=AccountSasPermissions(read=True), **names
    )
    of_container = generate_container_sas(
        container_name=container.container_name, permission=ContainerSasPermissions(read=True, list=True), **names
    )
    of_blob = generate_blob_sas(
        container_name=container.container_name, blob_name="seen", permission=BlobSasPermissions(read=True), **names
    )
    for token in (of_account, of_container, of_blob):
        with BlobServiceClient(service.url, credential=token, **HASTY) as client:
            blob = client.get_blob_client(container.container_name, "seen")
            assert blob.download_blob().readall() == b"content"
            with pytest.raises(HttpResponseError) as refused:
                blob.set_blob_metadata({"a": "b"})
            assert (refused.value.status_code, refused.value.error_code) == (403, "AuthorizationPermissionMismatch")
            with pytest.raises(HttpResponseError) as refused:
                client.create_container(fresh("container"))
            assert refused.value.status_code == 403
    with BlobServiceClient(service.url, credential=of_container, **HASTY) as client:
        assert [found.name for found in client.get_container_client(container.container_name).list_blobs()] == ["seen"]
    late = generate_blob_sas(
        container_name=container.container_name,
        blob_name="seen",
        permission=BlobSasPermissions(read=True),
        **(names | {"expiry": datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)}),
    )
    for token in (late, of_blob.replace("sp=r", "sp=rw")):
        with BlobServiceClient(service.url, credential=token, **HASTY) as client:
            with pytest.raises(ClientAuthenticationError) as refused:
                client.get_blob_client(container.container_name, "seen").download_blob()
            assert (refused.value.status_code, refused.value.error_code) == (403, "AuthenticationFailed")


def test_the_well_known_key_is_rejected_if_another_is_configured(storage, service):
    known = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    text = storage.storage_connection_string.replace(STORAGE_KEY, known)
    assert storage.storage_connection_string != text
    with BlobServiceClient.from_connection_string(text, **HASTY) as client:
        with pytest.raises(ClientAuthenticationError) as refused:
            list(client.list_containers())
    assert (refused.value.status_code, refused.value.error_code) == (403, "AuthenticationFailed")


def test_an_unsupported_call_is_rejected_with_a_reason(service, container):
    blob = container.get_blob_client("blob")
    blob.upload_blob(b"content")
    calls = [
        blob.create_snapshot,
        blob.create_append_blob,
        lambda: blob.set_blob_tags({"a": "b"}),
        lambda: blob.start_copy_from_url(blob.url),
        lambda: list(container.walk_blobs()),
        lambda: container.set_container_access_policy({}),
        service.get_service_properties,
    ]
    for call in calls:
        with pytest.raises(HttpResponseError) as refused:
            call()
        assert (refused.value.status_code, refused.value.error_code) == (501, "NotImplemented"), call
        assert "supported" in refused.value.message or "here" in refused.value.message
    assert blob.download_blob().readall() == b"content"
