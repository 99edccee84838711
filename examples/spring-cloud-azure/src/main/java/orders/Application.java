package orders;

import com.azure.messaging.servicebus.ServiceBusErrorContext;
import com.azure.messaging.servicebus.ServiceBusMessage;
import com.azure.messaging.servicebus.ServiceBusSenderClient;
import com.azure.spring.cloud.service.servicebus.consumer.ServiceBusErrorHandler;
import com.azure.spring.cloud.service.servicebus.consumer.ServiceBusRecordMessageListener;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;

/** Sends a message to the queue of application.yml, and prints what the processor receives from it. */
@SpringBootApplication
public class Application {
    public static void main(String[] arguments) {
        SpringApplication.run(Application.class, arguments);
    }

    @Bean
    CommandLineRunner sends(ServiceBusSenderClient sender) {
        return arguments -> sender.sendMessage(new ServiceBusMessage("hello"));
    }

    @Bean
    ServiceBusRecordMessageListener receives() {
        return context -> System.out.println("received: " + context.getMessage().getBody());
    }

    @Bean
    ServiceBusErrorHandler reports() {
        return (ServiceBusErrorContext context) -> System.err.println(context.getException());
    }
}
