import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Reads a topic, writes each record to another one, and commits its offsets, all in transactions, as
 * support/clients/exactly_once.py does.
 *
 * Arguments: BOOTSTRAP SOURCE TARGET GROUP TRANSACTIONAL_ID. It prints a line for each transaction that it commits. After
 * an error that does not let it abort its transaction it ends with status 1, and its caller starts another one.
 */
public class ExactlyOnce {
    private static final int TIMEOUT_MS = 30_000;

    public static void main(String[] arguments) {
        try (Producer<byte[], byte[]> producer = producer(arguments[0], arguments[4]);
                Consumer<byte[], byte[]> consumer = consumer(arguments[0], arguments[3])) {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[1]));
            for (long copied = 0; ; ) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) continue;
                try {
                    copy(records, producer, consumer, arguments[2]);
                } catch (KafkaException error) {
                    producer.abortTransaction();
                    rewind(consumer);
                    continue;
                }
                copied += records.count();
                System.out.println(copied);
            }
        } catch (RuntimeException error) {
            System.exit(1);
        }
    }

    private static void copy(
            ConsumerRecords<byte[], byte[]> records,
            Producer<byte[], byte[]> producer,
            Consumer<byte[], byte[]> consumer,
            String target) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<byte[], byte[]> record : records)
            producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
        for (TopicPartition partition : records.partitions())
            offsets.put(partition, new OffsetAndMetadata(consumer.position(partition)));
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
    }

    /** Goes back to what is committed: the aborted transaction has moved nothing. */
    private static void rewind(Consumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        committed.forEach((partition, offset) -> consumer.seek(partition, offset == null ? 0 : offset.offset()));
    }

    private static Producer<byte[], byte[]> producer(String bootstrap, String transactionalId) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("transactional.id", transactionalId);
        properties.put("transaction.timeout.ms", 10_000);
        properties.put("max.block.ms", TIMEOUT_MS);
        properties.put("request.timeout.ms", 5_000);
        properties.put("delivery.timeout.ms", TIMEOUT_MS);
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Consumer<byte[], byte[]> consumer(String bootstrap, String group) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", group);
        properties.put("enable.auto.commit", false);
        properties.put("auto.offset.reset", "earliest");
        properties.put("isolation.level", "read_committed");
        properties.put("session.timeout.ms", 6_000);
        properties.put("heartbeat.interval.ms", 1_000);
        properties.put("max.poll.records", 20);
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }
}
