import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.rocketmq.broker.filter.ConsumerFilterData;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.util.BitsArray;
import org.apache.rocketmq.filter.util.BloomFilter;
import software.amazon.event.ruler.GenericMachine;

/**
 * FilterBench rocketmq|ruler MESSAGES SUBSCRIPTIONS: filters all messages, for each line of input once.
 * MESSAGES: a line holds a message's properties as a broker stores them. SUBSCRIPTIONS: an SQL92 expression a line; for
 * ruler the number of a subscription, a tab and one of its rules. To the line "check" it answers with the matches of each
 * subscription, and a checksum of which messages they are, to any other with the nanoseconds it took.
 */
public class FilterBench {
    interface Filter {
        /** Returns something that depends on every match; counts and sums may be null. */
        long run(long[] counts, long[] sums) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream output = System.out;
        System.setOut(System.err); // where RocketMQ logs to
        List<Map<String, String>> messages = Files.readAllLines(Path.of(arguments[1])).stream()
            .map(MessageDecoder::string2messageProperties).collect(Collectors.toList());
        List<String> subscriptions = Files.readAllLines(Path.of(arguments[2]));
        Filter filter = arguments[0].equals("ruler") ? ruler(messages, subscriptions) : rocketmq(messages, subscriptions);
        long seen = 0;
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.startsWith("check")) {
                int groups = Integer.parseInt(line.substring(6));
                long[] counts = new long[groups];
                long[] sums = new long[groups];
                seen += filter.run(counts, sums);
                StringBuilder answer = new StringBuilder();
                for (int i = 0; i < groups; i++) {
                    answer.append(counts[i]).append(' ').append(sums[i]).append(' ');
                }
                output.println(answer);
            } else {
                long start = System.nanoTime();
                seen += filter.run(null, null);
                output.println(System.nanoTime() - start);
            }
        }
        System.err.print(seen == 42 ? " " : "");
    }

    /** Numbers mixed as in SplitMix64, so that equal sums mean the same messages. */
    static long mixed(long number) {
        long z = (number + 1) * 0x9E3779B97F4A7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    /** What CommitLogDispatcherCalcBitMap does for each message, without its logging. */
    static Filter rocketmq(List<Map<String, String>> messages, List<String> subscriptions) throws Exception {
        BloomFilter bloomFilter = BloomFilter.createByFn(20, 32);
        List<ConsumerFilterData> groups = new ArrayList<>();
        for (int i = 0; i < subscriptions.size(); i++) {
            ConsumerFilterData data = ConsumerFilterManager.build(
                "TopicTest", "GID_" + i, subscriptions.get(i), ExpressionType.SQL92, 1);
            data.setBloomFilterData(bloomFilter.generate("GID_" + i + "#TopicTest"));
            groups.add(data);
        }
        return (counts, sums) -> {
            long seen = 0;
            for (int row = 0; row < messages.size(); row++) {
                BitsArray bits = BitsArray.create(bloomFilter.getM());
                for (int i = 0; i < groups.size(); i++) {
                    Object outcome = null;
                    try {
                        outcome = groups.get(i).getCompiledExpression().evaluate(new MessageEvaluationContext(messages.get(row)));
                    } catch (Throwable error) {
                        seen++;
                    }
                    if (outcome instanceof Boolean && (Boolean) outcome) {
                        bloomFilter.hashTo(groups.get(i).getBloomFilterData(), bits);
                        if (counts != null) {
                            counts[i]++;
                            sums[i] += mixed(row);
                        }
                    }
                }
                seen += bits.bytes()[0];
            }
            return seen;
        };
    }

    static Filter ruler(List<Map<String, String>> messages, List<String> rules) throws Exception {
        GenericMachine<Integer> machine = new GenericMachine<>();
        // Each rule has a name of its own: of several under one name, event-ruler 1.8.1 misses some.
        int[] groupOf = new int[rules.size()];
        for (int rule = 0; rule < groupOf.length; rule++) {
            String[] parts = rules.get(rule).split("\t");
            groupOf[rule] = Integer.parseInt(parts[0]);
            machine.addRule(rule, parts[1]);
        }
        List<String[]> events = new ArrayList<>();
        for (Map<String, String> message : messages) {
            List<String> event = new ArrayList<>();
            new TreeMap<>(message).forEach((name, text) -> {
                event.add(name);
                event.add(Character.isDigit(text.charAt(0)) ? text : '"' + text + '"');
            });
            events.add(event.toArray(new String[0]));
        }
        return (counts, sums) -> {
            long seen = 0;
            for (int row = 0; row < events.size(); row++) {
                BitSet matches = new BitSet();
                for (int rule : machine.rulesForEvent(events.get(row))) {
                    matches.set(groupOf[rule]);
                }
                seen += matches.cardinality();
                if (counts != null) {
                    for (int i = matches.nextSetBit(0); i >= 0; i = matches.nextSetBit(i + 1)) {
                        counts[i]++;
                        sums[i] += mixed(row);
                    }
                }
            }
            return seen;
        };
    }
}
