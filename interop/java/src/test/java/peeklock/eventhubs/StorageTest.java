package peeklock.eventhubs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.util.BinaryData;
import com.azure.storage.blob.BlobClient;
import com.azure.storage.blob.BlobContainerClient;
import com.azure.storage.blob.BlobContainerClientBuilder;
import com.azure.storage.blob.models.BlobErrorCode;
import com.azure.storage.blob.models.BlobRequestConditions;
import com.azure.storage.blob.models.BlobStorageException;
import com.azure.storage.blob.models.LeaseStateType;
import com.azure.storage.blob.specialized.BlobLeaseClient;
import com.azure.storage.blob.specialized.BlobLeaseClientBuilder;
import com.azure.storage.queue.QueueClient;
import com.azure.storage.queue.QueueClientBuilder;
import com.azure.storage.queue.models.PeekedMessageItem;
import com.azure.storage.queue.models.QueueErrorCode;
import com.azure.storage.queue.models.QueueMessageItem;
import com.azure.storage.queue.models.QueueStorageException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import peeklock.Broker;

/** The storage client on which the checkpoint store depends, and the client for queues. */
class StorageTest {
    private static BlobContainerClient container() {
        BlobContainerClient container = new BlobContainerClientBuilder()
            .connectionString(Broker.shared().storageConnectionString()).containerName(Broker.name("blobs")).buildClient();
        container.create();
        return container;
    }

    private static BlobLeaseClient lease(BlobClient blob) {
        return new BlobLeaseClientBuilder().blobClient(blob).buildClient();
    }

    private static QueueClient queue() {
        return new QueueClientBuilder().connectionString(Broker.shared().storageConnectionString()).queueName(Broker.name("queue")).buildClient();
    }

    @Test
    void aBlobIsWrittenListedReadAndDeleted() {
        BlobContainerClient container = container();
        BlobClient blob = container.getBlobClient("folder/first");
        blob.upload(BinaryData.fromString("text"));
        blob.setMetadata(Map.of("owner", "me"));
        assertEquals("text", blob.downloadContent().toString());
        assertEquals(Map.of("owner", "me"), blob.getProperties().getMetadata());
        assertEquals(List.of("folder/first"), container.listBlobs().stream().map(item -> item.getName()).toList());
        BlobStorageException exists = assertThrows(BlobStorageException.class, () -> blob.upload(BinaryData.fromString("other")));
        assertEquals(BlobErrorCode.BLOB_ALREADY_EXISTS, exists.getErrorCode());
        BlobRequestConditions stale = new BlobRequestConditions().setIfMatch("\"0x0\"");
        BlobStorageException changed = assertThrows(BlobStorageException.class, () -> blob.setMetadataWithResponse(Map.of(), stale, null, null));
        assertEquals(BlobErrorCode.CONDITION_NOT_MET, changed.getErrorCode());
        blob.delete();
        BlobStorageException missing = assertThrows(BlobStorageException.class, blob::downloadContent);
        assertEquals(BlobErrorCode.BLOB_NOT_FOUND, missing.getErrorCode());
    }

    @Test
    void aLeaseRejectsOtherWriters() {
        BlobClient blob = container().getBlobClient("leased");
        blob.upload(BinaryData.fromString("text"));
        BlobLeaseClient mine = lease(blob);
        String id = mine.acquireLease(60);
        assertEquals(LeaseStateType.LEASED, blob.getProperties().getLeaseState());
        BlobStorageException taken = assertThrows(BlobStorageException.class, () -> lease(blob).acquireLease(60));
        assertEquals(BlobErrorCode.LEASE_ALREADY_PRESENT, taken.getErrorCode());
        BlobStorageException without = assertThrows(BlobStorageException.class, () -> blob.setMetadata(Map.of("a", "b")));
        assertEquals(BlobErrorCode.LEASE_ID_MISSING, without.getErrorCode());
        blob.setMetadataWithResponse(Map.of("a", "b"), new BlobRequestConditions().setLeaseId(id), null, null);
        assertEquals(id, mine.renewLease());
        mine.changeLease("00000000-0000-0000-0000-000000000001");
        mine.releaseLease();
        BlobLeaseClient next = lease(blob);
        next.acquireLease(-1);
        assertEquals(0, next.breakLease());
        assertEquals(LeaseStateType.BROKEN, blob.getProperties().getLeaseState());
    }

    @Test
    void aStorageQueueIsSentToReadAndDeleted() {
        QueueClient queue = queue();
        queue.create();
        queue.sendMessage("first");
        queue.sendMessage("second");
        assertEquals(2, queue.getProperties().getApproximateMessagesCount());
        PeekedMessageItem peeked = queue.peekMessage();
        assertEquals("first", peeked.getBody().toString());
        QueueMessageItem message = queue.receiveMessages(1, Duration.ofHours(1), null, null).stream().findFirst().orElseThrow();
        assertEquals("first", message.getBody().toString());
        assertEquals(1, message.getDequeueCount());
        var update = queue.updateMessage(message.getMessageId(), message.getPopReceipt(), "changed", Duration.ZERO);
        QueueStorageException old = assertThrows(QueueStorageException.class, () -> queue.deleteMessage(message.getMessageId(), message.getPopReceipt()));
        assertEquals(QueueErrorCode.POP_RECEIPT_MISMATCH, old.getErrorCode());
        queue.deleteMessage(message.getMessageId(), update.getPopReceipt());
        queue.clearMessages();
        assertEquals(0, queue.getProperties().getApproximateMessagesCount());
        queue.delete();
        QueueStorageException missing = assertThrows(QueueStorageException.class, () -> queue.sendMessage("never"));
        assertEquals(QueueErrorCode.QUEUE_NOT_FOUND, missing.getErrorCode());
        assertTrue(missing.getMessage().contains("queue"), missing.getMessage());
    }
}
