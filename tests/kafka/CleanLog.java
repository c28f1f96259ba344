import java.io.File;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** A pass of Kafka's cleaner over a log: FOLDER FIRST_DIRTY_OFFSET NOW_MS RETENTION_MS; prints the last stable offset. */
public class CleanLog {
    public static void main(String[] arguments) throws Exception {
        long now = Long.parseLong(arguments[2]);
        Time time = new Fixed(now);
        LogConfig config = new LogConfig(Map.of("cleanup.policy", "compact", "delete.retention.ms", arguments[3]));
        UnifiedLog log = UnifiedLog.create(new File(arguments[0]), config, 0, 0, new AtOnce(), new BrokerTopicStats(), time,
            900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000, new LogDirFailureChannel(1), false,
            Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        Throttler unthrottled = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner", "bytes", time);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 20), 1 << 16, 1 << 20, 0.9, unthrottled, time, name -> { });
        long end = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
        cleaner.doClean(new LogToClean(log, Long.parseLong(arguments[1]), end, false), now);
        System.out.println(log.lastStableOffset());
        log.flush(true);
    }

    private record Fixed(long milliseconds) implements Time {
        public long nanoseconds() { return System.nanoTime(); }
        public void sleep(long ms) { throw new UnsupportedOperationException(); }
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { throw new UnsupportedOperationException(); }
        public <T> T waitForFuture(CompletableFuture<T> future, long deadline) { throw new UnsupportedOperationException(); }
    }

    private static class AtOnce implements Scheduler {
        public void startup() { }
        public void shutdown() { }
        public void resizeThreadPool(int size) { }
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs <= 0) task.run();
            return null; // nobody asks for it, as the log is not closed
        }
    }
}
