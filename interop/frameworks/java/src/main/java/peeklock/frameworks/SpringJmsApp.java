package peeklock.frameworks;

import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Import;
import org.springframework.jms.annotation.EnableJms;
import org.springframework.jms.annotation.JmsListener;
import org.springframework.jms.core.JmsTemplate;
import org.springframework.messaging.handler.annotation.Header;
import org.springframework.messaging.handler.annotation.SendTo;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** Receives from a queue and a subscription with Spring Cloud Azure's starter for Service Bus over JMS. */
@SpringBootConfiguration
@EnableAutoConfiguration
@EnableJms
@Import(SpringJmsAddress.class)
public class SpringJmsApp {
    private final BlockingQueue<String> news = new LinkedBlockingQueue<>();

    /** Replies to each order with an invoice. */
    @JmsListener(destination = "spring-orders", containerFactory = "jmsListenerContainerFactory")
    @SendTo("spring-invoices")
    public String order(String order, @Header("customer") String customer) {
        return "invoice for " + customer + ": " + order;
    }

    @JmsListener(destination = "spring-news/Subscriptions/all", containerFactory = "jmsListenerContainerFactory")
    public void read(String text) {
        news.add(text);
    }

    @Bean
    public BlockingQueue<String> news() {
        return news;
    }

    /** Sends an order, and waits for the invoice. */
    public static String buy(JmsTemplate jms, String order, String customer) {
        jms.convertAndSend("spring-orders", order, message -> {
            message.setStringProperty("customer", customer);
            return message;
        });
        return (String) jms.receiveAndConvert("spring-invoices");
    }
}
