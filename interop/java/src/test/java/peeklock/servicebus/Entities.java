package peeklock.servicebus;

import com.azure.core.http.HttpPipelineCallContext;
import com.azure.core.http.HttpPipelineNextPolicy;
import com.azure.core.http.HttpPipelineNextSyncPolicy;
import com.azure.core.http.HttpResponse;
import com.azure.core.http.policy.HttpPipelinePolicy;
import com.azure.core.util.UrlBuilder;
import com.azure.messaging.servicebus.ServiceBusClientBuilder;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClient;
import com.azure.messaging.servicebus.administration.ServiceBusAdministrationClientBuilder;
import com.azure.messaging.servicebus.administration.models.CreateQueueOptions;
import com.azure.messaging.servicebus.administration.models.CreateSubscriptionOptions;
import java.util.function.Consumer;
import peeklock.Broker;
import reactor.core.publisher.Mono;

/** Creates entities that belong to one test, and the clients for them. */
final class Entities {
    /** The administration client always uses port 443 of the host, so a policy sets the port. */
    private record Port(int port) implements HttpPipelinePolicy {
        @Override
        public Mono<HttpResponse> process(HttpPipelineCallContext context, HttpPipelineNextPolicy next) {
            point(context);
            return next.process();
        }

        @Override
        public HttpResponse processSync(HttpPipelineCallContext context, HttpPipelineNextSyncPolicy next) {
            point(context);
            return next.processSync();
        }

        private void point(HttpPipelineCallContext context) {
            var request = context.getHttpRequest();
            request.setUrl(UrlBuilder.parse(request.getUrl()).setPort(port).toString());
        }
    }

    private Entities() {}

    static ServiceBusClientBuilder client() {
        return new ServiceBusClientBuilder().connectionString(Broker.shared().connectionString());
    }

    static ServiceBusAdministrationClientBuilder administrationBuilder(Broker broker) {
        var port = Integer.parseInt(broker.https().substring(broker.https().lastIndexOf(':') + 1));
        return new ServiceBusAdministrationClientBuilder()
                .connectionString(broker.tlsConnectionString(broker.https()))
                .addPolicy(new Port(port));
    }

    static ServiceBusAdministrationClient administration() {
        return Administration.CLIENT;
    }

    static String queue() {
        return queue(options -> {});
    }

    static String queue(Consumer<CreateQueueOptions> set) {
        var name = Broker.name("queue");
        var options = new CreateQueueOptions();
        set.accept(options);
        administration().createQueue(name, options);
        return name;
    }

    /** Creates a topic with one subscription of the given name. */
    static String topic(String subscription) {
        return topic(subscription, options -> {});
    }

    static String topic(String subscription, Consumer<CreateSubscriptionOptions> set) {
        var name = Broker.name("topic");
        var options = new CreateSubscriptionOptions();
        set.accept(options);
        administration().createTopic(name);
        administration().createSubscription(name, subscription, options);
        return name;
    }

    private static final class Administration {
        static final ServiceBusAdministrationClient CLIENT = administrationBuilder(Broker.shared()).buildClient();
    }
}
