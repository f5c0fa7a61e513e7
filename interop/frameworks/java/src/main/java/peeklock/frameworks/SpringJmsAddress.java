package peeklock.frameworks;

import com.azure.servicebus.jms.ServiceBusJmsConnectionFactory;
import com.azure.servicebus.jms.ServiceBusJmsConnectionFactorySettings;
import jakarta.jms.ConnectionFactory;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Primary;

/** Connects to another port than 5671, the only one that a connection string can specify. */
@Configuration
public class SpringJmsAddress {
    @Bean
    @Primary
    ConnectionFactory peeklockConnectionFactory(@Value("${peeklock.tls-address}") String address,
            @Value("${peeklock.key-name}") String keyName, @Value("${peeklock.key}") String key) {
        return new ServiceBusJmsConnectionFactory(keyName, key, address, new ServiceBusJmsConnectionFactorySettings());
    }
}
