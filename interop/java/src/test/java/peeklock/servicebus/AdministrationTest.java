package peeklock.servicebus;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.core.exception.ClientAuthenticationException;
import com.azure.core.exception.HttpResponseException;
import com.azure.core.exception.ResourceExistsException;
import com.azure.core.exception.ResourceNotFoundException;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.administration.models.CorrelationRuleFilter;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateRuleOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import com.azure.messaging.servicebus.administration.models.CreateTopicOptions;
import com.azure.messaging.servicebus.administration.models.EntityStatus;
import com.azure.messaging.servicebus.administration.models.SqlRuleAction;
import com.azure.messaging.servicebus.administration.models.SqlRuleFilter;
import com.azure.messaging.servicebus.administration.models.TrueRuleFilter;
import com.azure.messaging.servicebus.models.ServiceBusReceiveMode;
import java.time.Duration;
import java.time.OffsetDateTime;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import peeklock.Broker;

class AdministrationTest {
    @Test
    void aQueueIsCreatedShownChangedListedAndDeleted() {
        var administration = Entities.administration();
        var name = Broker.name("managed");
        var created = administration.createQueue(name, new CreateQueueOptions().setLockDuration(Duration.ofSeconds(45))
                .setMaxDeliveryCount(7).setDefaultMessageTimeToLive(Duration.ofHours(3)).setSessionRequired(true)
                .setDeadLetteringOnMessageExpiration(true).setUserMetadata("ours").setMaxSizeInMegabytes(2048));
        assertEquals(Duration.ofSeconds(45), created.getLockDuration());
        var shown = administration.getQueue(name);
        assertEquals(name, shown.getName());
        assertEquals(7, shown.getMaxDeliveryCount());
        assertEquals(Duration.ofHours(3), shown.getDefaultMessageTimeToLive());
        assertTrue(shown.isSessionRequired() && shown.isDeadLetteringOnMessageExpiration());
        assertEquals("ours", shown.getUserMetadata());
        assertEquals(2048, shown.getMaxSizeInMegabytes());
        assertEquals(EntityStatus.ACTIVE, shown.getStatus());
        administration.updateQueue(shown.setMaxDeliveryCount(9).setLockDuration(Duration.ofSeconds(50)));
        assertEquals(9, administration.getQueue(name).getMaxDeliveryCount());
        assertTrue(administration.listQueues().stream().anyMatch(queue -> queue.getName().equals(name)));
        administration.deleteQueue(name);
        assertFalse(administration.getQueueExists(name));
    }

    @Test
    void aTopicWithSubscriptionsAndRulesIsManaged() {
        var administration = Entities.administration();
        var topic = Broker.name("managed");
        administration.createTopic(topic, new CreateTopicOptions().setUserMetadata("ours"));
        administration.createSubscription(topic, "some", "first",
                new CreateSubscriptionOptions().setMaxDeliveryCount(4),
                new CreateRuleOptions(new SqlRuleFilter("color = 'red'")).setAction(new SqlRuleAction("SET seen = 1")));
        administration.createRule(topic, "second", "some",
                new CreateRuleOptions(new CorrelationRuleFilter().setLabel("blue")));
        assertEquals("ours", administration.getTopic(topic).getUserMetadata());
        assertEquals(4, administration.getSubscription(topic, "some").getMaxDeliveryCount());
        var rule = administration.getRule(topic, "some", "first");
        assertEquals("color = 'red'", ((SqlRuleFilter) rule.getFilter()).getSqlExpression());
        assertEquals("SET seen = 1", ((SqlRuleAction) rule.getAction()).getSqlExpression());
        assertEquals(Set.of("first", "second"), administration.listRules(topic, "some").stream()
                .map(one -> one.getName()).collect(Collectors.toSet()));
        administration.updateRule(topic, "some", rule.setFilter(new TrueRuleFilter()));
        administration.deleteRule(topic, "some", "second");
        assertEquals(1, administration.listRules(topic, "some").stream().count());
        assertEquals(1, administration.listSubscriptions(topic).stream().count());
        assertEquals(1, administration.getTopicRuntimeProperties(topic).getSubscriptionCount());
        administration.deleteSubscription(topic, "some");
        assertFalse(administration.getSubscriptionExists(topic, "some"));
        administration.deleteTopic(topic);
        assertFalse(administration.getTopicExists(topic));
    }

    @Test
    void runtimeCountsMatchTheContents() {
        var queue = Entities.queue();
        Steps.send(queue, "a", "b", "dead");
        try (var sender = Entities.client().sender().queueName(queue).buildClient();
                var receiver = Entities.client().receiver().queueName(queue).disableAutoComplete().buildClient()) {
            sender.scheduleMessage(new ServiceBusMessage("later"), OffsetDateTime.now().plusDays(1));
            receiver.deadLetter(Steps.some(receiver, 3).get(2));
        }
        var counts = Entities.administration().getQueueRuntimeProperties(queue);
        assertEquals(List.of(2L, 1L, 1L, 4L), List.of((long) counts.getActiveMessageCount(),
                (long) counts.getDeadLetterMessageCount(), (long) counts.getScheduledMessageCount(),
                (long) counts.getTotalMessageCount()));
        assertTrue(counts.getSizeInBytes() > 0);
    }

    @Test
    void rulesAreManagedOverAmqp() {
        var topic = Entities.topic("some");
        var client = Entities.client();
        try (var rules = client.ruleManager().topicName(topic).subscriptionName("some").buildClient();
                var sender = client.sender().topicName(topic).buildClient();
                var receiver = client.receiver().topicName(topic).subscriptionName("some")
                        .receiveMode(ServiceBusReceiveMode.RECEIVE_AND_DELETE).buildClient()) {
            assertEquals(List.of("$Default"), rules.listRules().stream().map(rule -> rule.getName()).toList());
            rules.deleteRule("$Default");
            rules.createRule("red", new CreateRuleOptions(new SqlRuleFilter("color = 'red'"))
                    .setAction(new SqlRuleAction("SET seen = 1")));
            rules.createRule("blue", new CreateRuleOptions(new CorrelationRuleFilter().setLabel("blue")));
            assertEquals(Set.of("red", "blue"),
                    rules.listRules().stream().map(rule -> rule.getName()).collect(Collectors.toSet()));
            var red = new ServiceBusMessage("red");
            red.getApplicationProperties().put("color", "red");
            sender.sendMessages(List.of(new ServiceBusMessage("none"), red, new ServiceBusMessage("blue").setSubject("blue")));
            var got = Steps.some(receiver, 2);
            assertEquals(List.of("red", "blue"), Steps.texts(got));
            assertEquals(1L, ((Number) got.get(0).getApplicationProperties().get("seen")).longValue());
            var error = assertThrows(RuntimeException.class, () -> rules.createRule("red", new CreateRuleOptions(new TrueRuleFilter())));
            assertTrue(Steps.story(error).contains("red"), () -> Steps.story(error));
        }
    }

    @Test
    void errorsHaveTheSdksTypesAndTheBrokersSentence() {
        var administration = Entities.administration();
        var queue = Entities.queue();
        var exists = assertThrows(ResourceExistsException.class, () -> administration.createQueue(queue));
        assertEquals(409, exists.getResponse().getStatusCode());
        assertTrue(exists.getMessage().contains(queue), exists.getMessage());
        var missing = assertThrows(ResourceNotFoundException.class, () -> administration.getQueue("not-there"));
        assertEquals(404, missing.getResponse().getStatusCode());
        var wrong = assertThrows(HttpResponseException.class,
                () -> administration.createQueue(Broker.name("x"), new CreateQueueOptions().setMaxDeliveryCount(-1)));
        assertEquals(400, wrong.getResponse().getStatusCode());
        assertTrue(wrong.getMessage().contains("MaxDeliveryCount"), wrong.getMessage());
    }

    @Test
    void aWrongKeyIsRejected() {
        var broker = Broker.shared();
        var administration = Entities.administrationBuilder(broker)
                .connectionString(broker.tlsConnectionString(broker.https()).replace(Broker.KEY, "wrong")).buildClient();
        var error = assertThrows(ClientAuthenticationException.class, () -> administration.getQueue("any"));
        assertEquals(401, error.getResponse().getStatusCode());
        assertTrue(error.getMessage().contains("key"), error.getMessage());
    }

    @Test
    void theNamespaceReportsItsName() {
        assertFalse(Entities.administration().getNamespaceProperties().getName().isEmpty());
    }
}
