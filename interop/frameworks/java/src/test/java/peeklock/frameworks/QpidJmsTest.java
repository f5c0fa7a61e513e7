package peeklock.frameworks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.JMSSecurityException;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.List;
import java.util.UUID;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Qpid JMS, a client without Service Bus support: a key name and a key are its user and password. */
class QpidJmsTest {
    private static final long WAIT_MS = 60_000;

    private final Broker broker = Broker.shared();
    private Connection connection;

    @BeforeEach
    void connect() throws JMSException {
        connection = new JmsConnectionFactory(Broker.KEY_NAME, Broker.KEY, "amqp://" + broker.address()).createConnection();
        connection.start();
    }

    @AfterEach
    void disconnect() throws JMSException {
        connection.close();
    }

    @Test
    void queueKeepsBodyHeadersAndProperties() throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue("jms-orders");
        MessageProducer producer = session.createProducer(queue);
        TextMessage order = session.createTextMessage("two apples");
        order.setStringProperty("customer", "Ann");
        order.setIntProperty("amount", 2);
        order.setJMSType("order");
        order.setJMSCorrelationID("basket-1");
        producer.send(order, DeliveryMode.PERSISTENT, 7, 3_600_000);
        BytesMessage bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {1, 2, 3});
        producer.send(bytes);
        MapMessage map = session.createMapMessage();
        map.setInt("price", 5);
        producer.send(map);

        MessageConsumer consumer = session.createConsumer(queue);
        TextMessage text = (TextMessage) consumer.receive(WAIT_MS);
        assertEquals("two apples", text.getText());
        assertEquals("Ann", text.getStringProperty("customer"));
        assertEquals(2, text.getIntProperty("amount"));
        assertEquals("order", text.getJMSType());
        assertEquals("basket-1", text.getJMSCorrelationID());
        assertEquals(order.getJMSMessageID(), text.getJMSMessageID());
        assertEquals(7, text.getJMSPriority());
        assertEquals(1, text.getIntProperty("JMSXDeliveryCount"));
        assertTrue(text.getJMSExpiration() > System.currentTimeMillis());
        assertEquals(3, assertInstanceOf(BytesMessage.class, consumer.receive(WAIT_MS)).getBodyLength());
        assertEquals(5, assertInstanceOf(MapMessage.class, consumer.receive(WAIT_MS)).getInt("price"));
        assertNull(consumer.receiveNoWait());
    }

    @Test
    void clientAcknowledgeRedeliversUnacknowledgedMessages() throws JMSException {
        Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        Queue queue = session.createQueue("jms-acknowledge");
        MessageProducer producer = session.createProducer(queue);
        producer.send(session.createTextMessage("done"));
        producer.send(session.createTextMessage("not done"));
        MessageConsumer consumer = session.createConsumer(queue);
        consumer.receive(WAIT_MS).acknowledge();
        assertEquals("not done", ((TextMessage) consumer.receive(WAIT_MS)).getText());
        session.recover();
        TextMessage again = (TextMessage) consumer.receive(WAIT_MS);
        assertEquals("not done", again.getText());
        assertTrue(again.getJMSRedelivered());
        session.close();

        // The session was closed without an acknowledgement, so the next one gets the message.
        Session next = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
        TextMessage third = (TextMessage) next.createConsumer(queue).receive(WAIT_MS);
        assertEquals("not done", third.getText());
        third.acknowledge();
    }

    @Test
    void transactedSessionCommitsReceivesAndSendsTogether() throws JMSException {
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Queue source = session.createQueue("jms-transacted");
        Queue target = session.createQueue("jms-committed");
        send(source, "job");
        MessageConsumer jobs = session.createConsumer(source);
        MessageProducer results = session.createProducer(target);

        assertEquals("job", ((TextMessage) jobs.receive(WAIT_MS)).getText());
        results.send(session.createTextMessage("result of a failure"));
        session.rollback();
        assertEquals("job", ((TextMessage) jobs.receive(WAIT_MS)).getText());
        results.send(session.createTextMessage("result"));
        session.commit();

        Session reader = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer committed = reader.createConsumer(target);
        assertEquals("result", ((TextMessage) committed.receive(WAIT_MS)).getText());
        assertNull(committed.receiveNoWait());
        assertNull(jobs.receiveNoWait());
    }

    @Test
    void topicCopiesToItsSubscriptions() throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createTopic("jms-news"));
        for (int level : List.of(3, 9)) {
            TextMessage message = session.createTextMessage("level " + level);
            message.setIntProperty("level", level);
            producer.send(message);
        }
        MessageConsumer all = session.createConsumer(session.createQueue("jms-news/Subscriptions/all"));
        MessageConsumer urgent = session.createConsumer(session.createQueue("jms-news/Subscriptions/urgent"));
        assertEquals("level 3", ((TextMessage) all.receive(WAIT_MS)).getText());
        assertEquals("level 9", ((TextMessage) all.receive(WAIT_MS)).getText());
        assertEquals("level 9", ((TextMessage) urgent.receive(WAIT_MS)).getText());
        assertNull(urgent.receiveNoWait());
    }

    @Test
    void requestGetsItsReply() throws JMSException {
        Session server = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer answers = server.createProducer(null);
        server.createConsumer(server.createQueue("jms-requests")).setMessageListener(request -> answer(server, answers, request));

        Session client = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue replies = client.createQueue("jms-replies");
        TextMessage request = client.createTextMessage("6 * 7");
        request.setJMSReplyTo(replies);
        request.setJMSCorrelationID(UUID.randomUUID().toString());
        client.createProducer(client.createQueue("jms-requests")).send(request);
        TextMessage reply = (TextMessage) client.createConsumer(replies).receive(WAIT_MS);
        assertEquals("42", reply.getText());
        assertEquals(request.getJMSCorrelationID(), reply.getJMSCorrelationID());
    }

    private static void answer(Session session, MessageProducer answers, Message request) {
        try {
            TextMessage reply = session.createTextMessage("42");
            reply.setJMSCorrelationID(request.getJMSCorrelationID());
            answers.send(request.getJMSReplyTo(), reply);
        } catch (JMSException error) {
            throw new IllegalStateException(error);
        }
    }

    @Test
    void jmsGroupIsTheSessionOfTheMessage() throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue("jms-sessions");
        TextMessage message = session.createTextMessage("first");
        message.setStringProperty("JMSXGroupID", "basket-7");
        session.createProducer(queue).send(message);
        // JMS cannot request a session, so only a Service Bus SDK can receive from such a queue.
        JMSException refused = assertThrows(JMSException.class, () -> session.createConsumer(queue));
        assertTrue(refused.getMessage().contains("session"), refused.getMessage());
        JMSException without = assertThrows(JMSException.class, () -> send(queue, "without a group"));
        assertTrue(without.getMessage().contains("session"), without.getMessage());
        try (var sessions = Sdk.builder().sessionReceiver().queueName("jms-sessions").buildClient();
                var receiver = sessions.acceptSession("basket-7")) {
            var received = receiver.receiveMessages(1).iterator().next();
            assertEquals("first", received.getRawAmqpMessage().getBody().getValue());
            receiver.complete(received);
        }
    }

    @Test
    void tlsTrustsTheBrokersCertificate() throws JMSException {
        String uri = "amqps://" + broker.tlsAddress() + "?transport.trustStoreLocation=" + broker.trustStore()
                + "&transport.trustStorePassword=" + Broker.STORE_PASSWORD + "&transport.storeType=PKCS12";
        try (Connection secure = new JmsConnectionFactory(Broker.KEY_NAME, Broker.KEY, uri).createConnection()) {
            secure.start();
            Session session = secure.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue("jms-tls");
            session.createProducer(queue).send(session.createTextMessage("secret"));
            assertNotNull(session.createConsumer(queue).receive(WAIT_MS));
        }
    }

    @Test
    void wrongKeyIsASecurityException() {
        // SASL does not transfer the broker's error message to the client; the broker logs it.
        var factory = new JmsConnectionFactory(Broker.KEY_NAME, "wrong", "amqp://" + broker.address());
        assertThrows(JMSSecurityException.class, factory::createConnection);
    }

    @Test
    void unknownQueueIsAnInvalidDestination() throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue nowhere = session.createQueue("nowhere");
        JMSException error = assertThrows(InvalidDestinationException.class, () -> session.createProducer(nowhere));
        assertTrue(error.getMessage().contains("nowhere"), error.getMessage());
        assertThrows(InvalidDestinationException.class, () -> session.createConsumer(nowhere));
    }

    @Test
    void unsupportedFeaturesAreRejectedWithAReason() throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue("jms-refused");
        send(queue, "untouched");
        assertRefused("cannot browse", () -> session.createBrowser(queue).getEnumeration());
        assertRefused("cannot select", () -> session.createConsumer(queue, "level > 3"));
        assertRefused("dynamic nodes are not supported", session::createTemporaryQueue);
        assertRefused("receive from one of its subscriptions", () -> session.createConsumer(session.createTopic("jms-news")));
        Message untouched = session.createConsumer(queue).receive(WAIT_MS);
        assertEquals(1, untouched.getIntProperty("JMSXDeliveryCount"));
    }

    private static void assertRefused(String sentence, Executable attempt) {
        JMSException error = assertThrows(JMSException.class, attempt);
        assertTrue(error.getMessage().contains(sentence), error.getMessage());
    }

    private void send(Queue queue, String text) throws JMSException {
        try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
                MessageProducer producer = session.createProducer(queue)) {
            producer.send(session.createTextMessage(text));
        }
    }
}
