package peeklock.frameworks;

import org.apache.camel.builder.RouteBuilder;

/** Moves messages between queues, a topic and an event hub. The connection strings are properties of the context. */
public class CamelRoutes extends RouteBuilder {
    private static final String CONNECTION = "connectionString=RAW({{peeklock.connection}})";

    @Override
    public void configure() {
        from("azure-servicebus:camel-in?" + CONNECTION).routeId("queue-to-queue")
                .transform().simple("${body} again")
                .to("azure-servicebus:camel-out?" + CONNECTION);

        from("azure-servicebus:camel-broken?" + CONNECTION).routeId("broken")
                .throwException(new IllegalStateException("this order cannot be read"));

        from("azure-servicebus:camel-news?serviceBusType=topic&subscriptionName=all&" + CONNECTION).routeId("news")
                .to("seda:news");

        from("direct:measure").routeId("to-hub").to("azure-eventhubs:?" + HUB_CONNECTION);

        from("azure-eventhubs:?checkpointStore=#checkpoints&checkpointBatchSize=1&eventPosition=#earliest&" + HUB_CONNECTION)
                .routeId("from-hub").to("seda:measured");
    }

    private static final String HUB_CONNECTION = "connectionString=RAW({{peeklock.connection}}EntityPath=camel-telemetry)";
}
