package peeklock.frameworks;

import com.azure.spring.messaging.servicebus.implementation.core.annotation.ServiceBusListener;
import com.azure.spring.messaging.implementation.annotation.EnableAzureMessaging;
import com.azure.spring.messaging.servicebus.core.ServiceBusTemplate;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.messaging.support.MessageBuilder;

/** Receives from a queue and sends to another with Spring Messaging over the SDK of Service Bus. */
@SpringBootConfiguration
@EnableAutoConfiguration
@EnableAzureMessaging
public class SpringMessagingApp {
    private final ServiceBusTemplate template;

    SpringMessagingApp(ServiceBusTemplate template) {
        this.template = template;
    }

    @ServiceBusListener(destination = "spring-tasks")
    public void task(String task) {
        template.send("spring-results", MessageBuilder.withPayload(task + " is done").build());
    }
}
