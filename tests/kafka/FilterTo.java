import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetention;
import org.apache.kafka.common.record.internal.MemoryRecords.RecordFilter.BatchRetentionResult;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;

/** What Kafka's cleaner makes of batches: LOG OUTPUT NOW_MS RETENTION_MS LAST_OFFSET KEPT_OFFSETS KEPT_BASE_OFFSETS. */
public class FilterTo {
    public static void main(String[] arguments) throws Exception {
        long now = Long.parseLong(arguments[2]);
        long lastOffset = Long.parseLong(arguments[4]);
        Set<Long> kept = numbers(arguments[5]);
        Set<Long> keepEmpty = numbers(arguments[6]);
        ByteBuffer log = ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[0])));
        ByteBuffer output = ByteBuffer.allocate(4 * log.remaining());
        MemoryRecords.readableRecords(log).filterTo(new MemoryRecords.RecordFilter(now, Long.parseLong(arguments[3])) {
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                boolean stays = keepEmpty.contains(batch.baseOffset()) || batch.lastOffset() == lastOffset;
                return new BatchRetentionResult(stays ? BatchRetention.RETAIN_EMPTY : BatchRetention.DELETE_EMPTY, false);
            }

            // As Cleaner.shouldRetainRecord, of a record with a key, where the map says whether it is the newest.
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                boolean deletesStay = batch.deleteHorizonMs().isEmpty() || now < batch.deleteHorizonMs().getAsLong();
                return kept.contains(record.offset()) && (record.hasValue() || deletesStay);
            }
        }, output, BufferSupplier.create());
        output.flip();
        byte[] bytes = new byte[output.remaining()];
        output.get(bytes);
        Files.write(Path.of(arguments[1]), bytes);
    }

    private static Set<Long> numbers(String path) throws Exception {
        Set<Long> numbers = new HashSet<>();
        for (String line : Files.readAllLines(Path.of(path))) numbers.add(Long.parseLong(line));
        return numbers;
    }
}
