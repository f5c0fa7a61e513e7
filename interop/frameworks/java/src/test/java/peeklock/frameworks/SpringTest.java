package peeklock.frameworks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.azure.spring.messaging.servicebus.core.ServiceBusTemplate;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.messaging.support.MessageBuilder;

/** Spring Boot programs with Spring Cloud Azure: the starter for JMS, and Spring Messaging over the SDK. */
class SpringTest {
    private static final long WAIT_MS = 120_000;

    private final Broker broker = Broker.shared();

    @Test
    void jmsListenerAnswersOrders() {
        try (ConfigurableApplicationContext app = jmsApp()) {
            JmsTemplate jms = app.getBean(JmsTemplate.class);
            jms.setReceiveTimeout(WAIT_MS);
            assertEquals("invoice for Ann: two apples", SpringJmsApp.buy(jms, "two apples", "Ann"));
        }
    }

    @Test
    @SuppressWarnings("unchecked")
    void jmsListenerReadsASubscription() throws InterruptedException {
        try (ConfigurableApplicationContext app = jmsApp()) {
            JmsTemplate jms = app.getBean(JmsTemplate.class);
            jms.setPubSubDomain(true);
            jms.convertAndSend("spring-news", "rain");
            assertEquals("rain", app.getBean("news", BlockingQueue.class).poll(WAIT_MS, TimeUnit.MILLISECONDS));
        }
    }

    @Test
    void serviceBusListenerReceivesTasks() {
        Map<String, Object> properties = Map.of(
                "spring.cloud.azure.servicebus.connection-string", broker.connectionString(),
                "spring.cloud.azure.servicebus.entity-type", "queue",
                "spring.jms.servicebus.enabled", false);
        try (ConfigurableApplicationContext app = run(SpringMessagingApp.class, properties);
                var receiver = Sdk.builder().receiver().queueName("spring-results").buildClient()) {
            app.getBean(ServiceBusTemplate.class).send("spring-tasks", MessageBuilder.withPayload("washing up").build());
            var result = receiver.receiveMessages(1, Duration.ofMillis(WAIT_MS)).iterator().next();
            assertEquals("washing up is done", result.getBody().toString());
            receiver.complete(result);
        }
    }

    private ConfigurableApplicationContext jmsApp() {
        return run(SpringJmsApp.class, Map.of(
                "peeklock.tls-address", broker.tlsAddress().replace("127.0.0.1", "localhost"),
                "peeklock.key-name", Broker.KEY_NAME,
                "peeklock.key", Broker.KEY,
                "spring.jms.servicebus.connection-string", broker.connectionString(),
                "spring.jms.servicebus.pricing-tier", "premium"));
    }

    private static ConfigurableApplicationContext run(Class<?> program, Map<String, Object> properties) {
        return new SpringApplicationBuilder(program).web(WebApplicationType.NONE).properties(properties).logStartupInfo(false).run();
    }
}
