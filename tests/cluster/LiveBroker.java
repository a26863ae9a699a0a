import java.io.*;
import java.lang.reflect.*;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.*;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.longpolling.*;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.*;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * A name server, a broker and push consumers in one process, on 127.0.0.1: LiveBroker FOLDER. It answers each line of stdin
 * (fields divided by tabs) with one line. FOLDER/received.tsv has what listeners got: group, topic, queue id, queue offset.
 *
 *   start                             the ports of the name server and of the broker
 *   topic NAME QUEUES
 *   send TOPIC TAG KEY=VALUE…         the queue id and the queue offset
 *   on GROUP CLIENT first|last (TOPIC TYPE EXPRESSION)…
 *   to GROUP CLIENT TOPIC TYPE EXPRESSION
 *   drop GROUP CLIENT TOPIC
 *   off GROUP CLIENT
 *   settle                            all is received and committed, and no pull is held under an older subscription
 *   restart                           of the broker
 *   snapshot FOLDER                   a copy of the store
 */
public class LiveBroker {
    static Path root;
    static BrokerController broker;
    static DefaultMQProducer producer;
    static int nsPort, brokerPort, haPort;
    static final Map<String, DefaultMQPushConsumer> consumers = new LinkedHashMap<>();
    static final AtomicLong received = new AtomicLong();
    static PrintStream got;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        root = Paths.get(arguments[0]);
        Files.createDirectories(root);
        got = new PrintStream(new FileOutputStream(root.resolve("received.tsv").toFile()), true, "UTF-8");
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = questions.readLine()) != null; ) {
            try {
                answers.println(answer(line.split("\t", -1)));
            } catch (Throwable error) {
                error.printStackTrace();
                answers.println("failed: " + error);
            }
        }
        System.exit(0);
    }

    static String answer(String[] f) throws Exception {
        DefaultMQPushConsumer consumer = f.length > 2 ? consumers.get(f[1] + "#" + f[2]) : null;
        switch (f[0]) {
            case "start":
                nsPort = freePort(); brokerPort = freePort(); haPort = freePort();
                NamesrvConfig config = new NamesrvConfig();
                config.setKvConfigPath(root.resolve("kv.json").toString());
                config.setConfigStorePath(root.resolve("namesrv.properties").toString());
                NamesrvController names = new NamesrvController(config, netty(nsPort));
                if (!names.initialize()) throw new IllegalStateException("name server");
                names.start();
                startBroker();
                producer = new DefaultMQProducer("producers");
                client(producer, "producer");
                producer.start();
                return nsPort + "\t" + brokerPort;
            case "topic":
                int queues = Integer.parseInt(f[2]);
                broker.getTopicConfigManager().updateTopicConfig(new TopicConfig(f[1], queues, queues, 6));
                broker.registerBrokerAll(true, false, true);
                return "ok";
            case "send":
                Message message = new Message(f[1], f[2].isEmpty() ? null : f[2], "x".getBytes());
                for (int i = 3; i < f.length; i++) message.putUserProperty(f[i].split("=", 2)[0], f[i].split("=", 2)[1]);
                SendResult sent = producer.send(message);
                if (sent.getSendStatus() != SendStatus.SEND_OK) throw new IllegalStateException(sent.toString());
                return sent.getMessageQueue().getQueueId() + "\t" + sent.getQueueOffset();
            case "on": on(f); return "ok";
            case "to": subscribe(consumer, f[3], f[4], f[5]); return "ok";
            case "drop":
                consumer.unsubscribe(f[3]);
                consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().sendHeartbeatToAllBrokerWithLock();
                consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().rebalanceImmediately();
                return "ok";
            case "off": consumers.remove(f[1] + "#" + f[2]).shutdown(); return "ok";
            case "settle": settle(); return "ok";
            case "restart": broker.shutdown(); startBroker(); return "ok";
            case "snapshot": snapshot(Paths.get(f[1])); return "ok";
            default: throw new IllegalArgumentException(f[0]);
        }
    }

    static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) { return socket.getLocalPort(); }
    }

    static NettyServerConfig netty(int port) throws Exception {
        NettyServerConfig netty = new NettyServerConfig();
        netty.setListenPort(port);
        for (Method each : NettyServerConfig.class.getMethods()) {      // since 5.0
            if (each.getName().equals("setBindAddress")) each.invoke(netty, "127.0.0.1");
        }
        return netty;
    }

    static void startBroker() throws Exception {
        BrokerConfig config = new BrokerConfig();
        config.setBrokerName("broker-a"); config.setBrokerClusterName("live"); config.setBrokerIP1("127.0.0.1");
        config.setNamesrvAddr("127.0.0.1:" + nsPort);
        config.setEnablePropertyFilter(true); config.setEnableCalcFilterBitMap(true);
        config.setAutoCreateTopicEnable(false); config.setBrokerFastFailureEnable(false);
        for (Method each : BrokerConfig.class.getMethods()) if (each.getName().equals("setListenPort")) each.invoke(config, brokerPort);
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(root.resolve("store").toString());
        store.setStorePathCommitLog(root.resolve("store/commitlog").toString());
        store.setMappedFileSizeCommitLog(1 << 20); store.setMappedFileSizeConsumeQueue(20 * 1000);
        store.setEnableConsumeQueueExt(true); store.setMappedFileSizeConsumeQueueExt(64 << 10);
        store.setMessageIndexEnable(false); store.setHaListenPort(haPort); store.setFlushIntervalConsumeQueue(200);
        for (Method each : MessageStoreConfig.class.getMethods()) if (each.getName().equals("setTimerWheelEnable")) each.invoke(store, false);
        broker = new BrokerController(config, netty(brokerPort), new NettyClientConfig(), store);
        if (!broker.initialize()) throw new IllegalStateException("broker");
        broker.start();
        for (int i = 0; i < 100 && broker.getMessageStore().dispatchBehindBytes() > 0; i++) Thread.sleep(20);
        broker.registerBrokerAll(true, false, true);
    }

    static void client(ClientConfig client, String name) {
        client.setNamesrvAddr("127.0.0.1:" + nsPort); client.setInstanceName(name); client.setClientIP("127.0.0.1");
        client.setVipChannelEnabled(false); client.setPollNameServerInterval(1000);
    }

    static void on(String[] f) throws Exception {
        String group = f[1];
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        client(consumer, f[2]);
        consumer.setConsumeFromWhere(f[3].equals("first") ? ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET : ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        consumer.setConsumeThreadMin(1); consumer.setConsumeThreadMax(1); consumer.setPersistConsumerOffsetInterval(500);
        for (int i = 4; i < f.length; i += 3) subscribe(consumer, f[i], f[i + 1], f[i + 2]);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                got.println(String.join("\t", group, m.getTopic(), "" + m.getQueueId(), "" + m.getQueueOffset()));
                received.incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(f[1] + "#" + f[2], consumer);
    }

    static void subscribe(DefaultMQPushConsumer consumer, String topic, String type, String expression) throws Exception {
        if (type.equals("TAG")) consumer.subscribe(topic, expression);
        else consumer.subscribe(topic, MessageSelector.bySql(expression));
    }

    static void settle() throws Exception {
        for (int calm = 0, round = 0; calm < 2; round++) {
            if (round > 300) throw new IllegalStateException("does not settle: " + unsettled());
            long last = received.get();
            answerHeld();
            Thread.sleep(150);
            for (DefaultMQPushConsumer each : consumers.values()) each.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            Thread.sleep(50);
            calm = last == received.get() && unsettled() == null ? calm + 1 : 0;
        }
    }

    /** Answers the pulls that the broker holds, as it does after 15 s. */
    static void answerHeld() throws Exception {
        Field table = PullRequestHoldService.class.getDeclaredField("pullRequestTable");
        table.setAccessible(true);
        for (Object each : ((Map<?, ?>) table.get(broker.getPullRequestHoldService())).values()) {
            List<PullRequest> held = ((ManyPullRequest) each).cloneListAndClear();
            if (held == null) continue;
            for (PullRequest pull : held) broker.getPullMessageProcessor().executeRequestWhenWakeup(pull.getClientChannel(), pull.getRequestCommand());
        }
    }

    /** A queue that no client of a group reads yet, or in which the group is behind; null if there is none. */
    static String unsettled() throws Exception {
        for (DefaultMQPushConsumer each : consumers.values()) {
            DefaultMQPushConsumerImpl impl = each.getDefaultMQPushConsumerImpl();
            for (String topic : impl.getSubscriptionInner().keySet()) {
                TopicConfig config = broker.getTopicConfigManager().selectTopicConfig(topic);
                for (int i = 0; config != null && i < config.getReadQueueNums(); i++) {
                    MessageQueue queue = new MessageQueue(topic, "broker-a", i);
                    if (!impl.getRebalanceImpl().getProcessQueueTable().containsKey(queue)) return each.getConsumerGroup() + " reads not " + queue;
                    long end = broker.getMessageStore().getMaxOffsetInQueue(topic, i);
                    long at = broker.getConsumerOffsetManager().queryOffset(each.getConsumerGroup(), topic, i);
                    if (end > 0 && at != end) return each.getConsumerGroup() + " is at " + at + " of " + end + " in " + queue;
                }
            }
        }
        return null;
    }

    static void snapshot(Path copy) throws Exception {
        broker.getConsumerOffsetManager().persist();
        Path store = root.resolve("store");
        List<Path> paths;
        try (Stream<Path> walk = Files.walk(store)) { paths = walk.collect(Collectors.toList()); }
        for (Path each : paths) {
            String name = store.relativize(each).toString();
            if (Files.isDirectory(each)) Files.createDirectories(copy.resolve(name));
            else if (name.matches("(commitlog|consumequeue|config).*|checkpoint")) Files.copy(each, copy.resolve(name));
        }
    }
}
