import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.apache.rocketmq.broker.filter.CommitLogDispatcherCalcBitMap;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.ExpressionMessageFilter;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.util.BloomFilter;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.store.CommitLogDispatcher;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * NightBench WARM_LOG LOG SEGMENT SUBSCRIPTIONS BIT_MAP SAMPLED THREADS BEFORE PAIRS: RocketMQ's own night.
 *
 * LOG is a commitlog folder with files of SEGMENT bytes. SUBSCRIPTIONS: group, topic and SQL92 expression a line, tabs
 * between; all are registered, and the first SAMPLED pull. BEFORE: when they were registered, ms. A night is the reput
 * of the log through the store's dispatchers, as ReputMessageService does it, and a pull of each group from the first
 * message of its topic to the last, in THREADS threads. Nights of WARM_LOG come first, for at least three seconds.
 * Writes the pairs of group and message as triples of big-endian longs (number of the group, queue id, queue offset) to
 * PAIRS, and prints the nanoseconds of the reput and of the pulls: medians of five nights on LOG.
 */
public class NightBench {
    static final long WARM_UP = 3_000_000_000L;
    static final int NIGHTS = 5;
    static final int QUEUES = 8;
    static final int MESSAGES_A_PULL = 32;

    final long segment;
    final boolean bitMap;
    final int threads;
    final List<String[]> subscriptions = new ArrayList<>();
    final int sampled;
    final long before;

    NightBench(String[] arguments) throws IOException {
        segment = Long.parseLong(arguments[2]);
        for (String line : Files.readAllLines(Path.of(arguments[3]))) {
            subscriptions.add(line.split("\t"));
        }
        bitMap = Boolean.parseBoolean(arguments[4]);
        sampled = Integer.parseInt(arguments[5]);
        threads = Integer.parseInt(arguments[6]);
        before = Long.parseLong(arguments[7]);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream output = System.out;
        System.setOut(System.err); // where RocketMQ logs to
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1); // Threads of the store would go on.
        });
        NightBench bench = new NightBench(arguments);
        long worked = 0;
        while (worked < WARM_UP) {
            long[] times = bench.night(arguments[0], null);
            worked += times[0] + times[1];
        }
        long[][] times = new long[NIGHTS][];
        for (int i = 1; i < NIGHTS; i++) {
            times[i] = bench.night(arguments[1], null);
        }
        try (DataOutputStream pairs = new DataOutputStream(
            new BufferedOutputStream(Files.newOutputStream(Path.of(arguments[8]))))) {
            times[0] = bench.night(arguments[1], pairs);
        }
        output.println(median(times, 0) + " " + median(times, 1));
        System.exit(0);
    }

    static long median(long[][] times, int part) {
        return Arrays.stream(times).mapToLong(each -> each[part]).sorted().toArray()[NIGHTS / 2];
    }

    /** Returns the nanoseconds of the reput and of the pulls. */
    long[] night(String log, DataOutputStream pairs) throws Exception {
        Path root = Files.createTempDirectory(Path.of(log).getParent(), "night");
        try {
            BrokerConfig brokerConfig = new BrokerConfig();
            brokerConfig.setEnablePropertyFilter(true);
            brokerConfig.setEnableCalcFilterBitMap(bitMap);
            MessageStoreConfig config = new MessageStoreConfig();
            config.setStorePathRootDir(root.toString());
            config.setStorePathCommitLog(log);
            config.setMappedFileSizeCommitLog((int) segment);
            config.setMessageIndexEnable(false);
            config.setEnableConsumeQueueExt(bitMap);
            ConsumerFilterManager manager = register(brokerConfig, config);
            DefaultMessageStore store = new DefaultMessageStore(
                config, new BrokerStatsManager("bench", false), null, brokerConfig, new ConcurrentHashMap<>());
            List<CommitLogDispatcher> dispatchers = new ArrayList<>(store.getDispatcherList());
            store.getDispatcherList().clear(); // or loading would dispatch already
            if (!store.load()) {
                throw new IllegalStateException("the store cannot be loaded: " + log);
            }
            open(store);
            store.getDispatcherList().addAll(dispatchers);
            store.getDispatcherList().addFirst(new CommitLogDispatcherCalcBitMap(brokerConfig, manager));
            long begin = System.nanoTime();
            reput(store);
            long dispatched = System.nanoTime();
            pull(store, manager, pairs);
            return new long[] {dispatched - begin, System.nanoTime() - dispatched};
        } finally {
            try (Stream<Path> files = Files.walk(root)) {
                files.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }

    ConsumerFilterManager register(BrokerConfig brokerConfig, MessageStoreConfig config) throws Exception {
        ConsumerFilterManager manager = new ConsumerFilterManager();
        Field bloomFilter = ConsumerFilterManager.class.getDeclaredField("bloomFilter");
        bloomFilter.setAccessible(true);
        bloomFilter.set(manager, BloomFilter.createByFn(
            brokerConfig.getMaxErrorRateOfBloomFilter(), brokerConfig.getExpectConsumerNumUseFilter()));
        config.setBitMapLengthConsumeQueueExt(manager.getBloomFilter().getM());
        for (String[] of : subscriptions) {
            manager.register(of[1], of[0], of[2], ExpressionType.SQL92, 1);
            manager.get(of[1], of[0]).setBornTime(before);
        }
        return manager;
    }

    /** Lets pulls in, as DefaultMessageStore.start() does, without its threads. */
    static void open(DefaultMessageStore store) throws Exception {
        Field isClosed = DefaultMessageStore.class.getDeclaredField("shutdown");
        isClosed.setAccessible(true);
        isClosed.set(store, false);
    }

    static void reput(DefaultMessageStore store) throws Exception {
        Field field = DefaultMessageStore.class.getDeclaredField("reputMessageService");
        field.setAccessible(true);
        Object service = field.get(store);
        Method from = service.getClass().getDeclaredMethod("setReputFromOffset", long.class);
        Method reput = service.getClass().getDeclaredMethod("doReput");
        from.setAccessible(true);
        reput.setAccessible(true);
        from.invoke(service, 0L);
        while (store.getReputFromOffset() < store.getMaxPhyOffset()) {
            reput.invoke(service);
        }
    }

    void pull(DefaultMessageStore store, ConsumerFilterManager manager, DataOutputStream pairs) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Callable<List<long[]>>> pulls = new ArrayList<>();
        for (int i = 0; i < sampled; i++) {
            int number = i;
            pulls.add(() -> pull(store, manager, number));
        }
        for (Future<List<long[]>> received : pool.invokeAll(pulls)) {
            for (long[] pair : received.get()) {
                if (pairs != null) {
                    for (long value : pair) {
                        pairs.writeLong(value);
                    }
                }
            }
        }
        pool.shutdown();
    }

    List<long[]> pull(DefaultMessageStore store, ConsumerFilterManager manager, int number) throws Exception {
        String[] of = subscriptions.get(number);
        ConsumerFilterData data = manager.get(of[1], of[0]);
        MessageFilter filter =
            new ExpressionMessageFilter(FilterAPI.build(of[1], of[2], ExpressionType.SQL92), data, manager);
        List<long[]> received = new ArrayList<>();
        for (int queue = 0; queue < QUEUES; queue++) {
            long end = store.getMaxOffsetInQueue(of[1], queue);
            long offset = 0;
            while (offset < end) {
                GetMessageResult result = store.getMessage(of[0], of[1], queue, offset, MESSAGES_A_PULL, filter);
                for (long each : result.getMessageQueueOffset()) {
                    received.add(new long[] {number, queue, each});
                }
                offset = result.getNextBeginOffset();
                result.release();
            }
        }
        return received;
    }
}
