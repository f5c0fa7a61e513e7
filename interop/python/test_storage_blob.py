"""Blobs as azure-storage-blob sees them: what is there beside the calls of the checkpoint stores, and how far it goes."""

import datetime

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
    """With keys of its own on both edges."""
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


def test_containers(service):
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
def test_names(container, name):
    blob = container.get_blob_client(name)
    blob.upload_blob(b"content", metadata={"n": "1"})
    assert [found.name for found in container.list_blobs()] == [name]
    assert blob.download_blob().readall() == b"content"
    blob.delete_blob()
    assert not blob.exists()


def test_metadata(container):
    """Names and values come back as they were written."""
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


def test_conditions(container):
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


def test_content_and_headers(container):
    blob = container.get_blob_client("content")
    content = bytes(range(256)) * 256
    settings = ContentSettings(content_type="text/x-own", cache_control="no-store", content_language="de")
    blob.upload_blob(content, content_settings=settings)
    found = blob.get_blob_properties()
    assert (found.size, found.content_settings.content_type) == (len(content), "text/x-own")
    assert (found.content_settings.cache_control, found.content_settings.content_language) == ("no-store", "de")
    assert blob.download_blob().readall() == content
    assert blob.download_blob(offset=10, length=5).readall() == content[10:15]
    with pytest.raises(HttpResponseError) as refused:
        blob.upload_blob(content + b"x", overwrite=True)
    assert refused.value.status_code == 413 and "65536" in refused.value.message
    assert blob.get_blob_properties().size == len(content)


def test_lists_by_prefix_and_page(container):
    for number in range(7):
        container.upload_blob(f"a/{number}", b"")
    container.upload_blob("b/0", b"")
    pages = container.list_blobs(name_starts_with="a/", results_per_page=3).by_page()
    assert [[found.name for found in page] for page in pages] == [["a/0", "a/1", "a/2"], ["a/3", "a/4", "a/5"], ["a/6"]]
    assert list(container.list_blobs(name_starts_with="c")) == []


def test_shared_access_signatures(service, container):
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


def test_the_well_known_key_is_no_key_beside_real_ones(storage, service):
    known = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    text = storage.storage_connection_string.replace(STORAGE_KEY, known)
    assert storage.storage_connection_string != text
    with BlobServiceClient.from_connection_string(text, **HASTY) as client:
        with pytest.raises(ClientAuthenticationError) as refused:
            list(client.list_containers())
    assert (refused.value.status_code, refused.value.error_code) == (403, "AuthenticationFailed")


def test_what_is_not_served_says_what_is(service, container):
    blob = container.get_blob_client("blob")
    blob.upload_blob(b"content")
    calls = [
        blob.create_snapshot,
        blob.create_append_blob,
        blob.acquire_lease,
        lambda: blob.set_blob_tags({"a": "b"}),
        lambda: blob.stage_block("YQ==", b"x"),
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
