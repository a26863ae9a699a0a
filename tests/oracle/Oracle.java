/** Reads questions ({"kind", "question"}) from stdin and writes RocketMQ's answers to stdout, as JSON lines in ASCII. */
public class Oracle {
    interface Answer {
        Object to(JsonObject question) throws Exception;
    }

    static final Gson GSON = new GsonBuilder().disableHtmlEscaping().serializeNulls().create();
    static final Map<String, Answer> KINDS = new HashMap<>();

    static {
        KINDS.put("sql", Oracle::sql);
        KINDS.put("tags", Oracle::tags);
        KINDS.put("tag_hashes", question -> MessageExtBrokerInner.tagsString2tagsCode(text(question, "tag")));
        KINDS.put("tag_match", Oracle::tagMatch);
        KINDS.put("bloom", Oracle::bloom);
        KINDS.put("registry", Oracle::registry);
        KINDS.put("groupinfo", Oracle::groupInfo);
        KINDS.put("dispatch", Oracle::dispatch);
        KINDS.put("retry", Oracle::retry);
        KINDS.put("namespaces", Oracle::namespaces);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Thread deep =
            new Thread(null, () -> in.lines().forEach(line -> out.println(ascii(answered(line)))), "deep", 1L << 30);
        deep.start();
        deep.join();
        out.flush();
        System.exit(0);
    }

    static String answered(String line) {
        try {
            JsonObject asked = JsonParser.parseString(line).getAsJsonObject();
            return GSON.toJson(KINDS.get(text(asked, "kind")).to(asked.getAsJsonObject("question")));
        } catch (Throwable error) {
            return GSON.toJson("fails: " + error);
        }
    }

    static String ascii(String json) {
        StringBuilder escaped = new StringBuilder();
        for (char c : json.toCharArray()) {
            escaped.append(c < 128 ? String.valueOf(c) : String.format("\\u%04x", (int) c));
        }
        return escaped.toString();
    }

    static String text(JsonObject object, String name) {
        JsonElement value = object.get(name);
        return value == null || value.isJsonNull() ? null : value.getAsString();
    }

    static List<JsonObject> objects(JsonObject object, String name) {
        List<JsonObject> found = new ArrayList<>();
        object.getAsJsonArray(name).forEach(each -> found.add(each.getAsJsonObject()));
        return found;
    }

    static Map<String, String> properties(JsonObject object) {
        Map<String, String> found = new HashMap<>();
        JsonElement given = object.get("properties");
        if (given != null && !given.isJsonNull()) {
            given.getAsJsonObject().entrySet().forEach(each -> {
                if (!each.getValue().isJsonNull()) {
                    found.put(each.getKey(), each.getValue().getAsString());
                }
            });
        }
        return found;
    }

    static Object sql(JsonObject question) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text(question, "expression"));
        } catch (Throwable refused) {
            return null;
        }
        List<String> results = new ArrayList<>();
        for (JsonObject each : objects(question, "cases")) {
            try {
                Object result = expression.evaluate(new MessageEvaluationContext(properties(each)));
                results.add(result == null ? "NULL" : result.toString().toUpperCase());
            } catch (Throwable fails) {
                results.add("ERROR");
            }
        }
        return results;
    }

    static Object tags(JsonObject question) {
        try {
            SubscriptionData made = FilterAPI.buildSubscriptionData(text(question, "topic"), text(question, "input"));
            return Arrays.asList(made.getSubString(), new TreeSet<>(made.getTagsSet()), new TreeSet<>(made.getCodeSet()));
        } catch (Exception refused) {
            return null;
        }
    }

    static Object tagMatch(JsonObject question) {
        SubscriptionData made;
        try {
            made = FilterAPI.buildSubscriptionData(text(question, "topic"), text(question, "subString"));
        } catch (Exception refused) {
            return null;
        }
        ExpressionMessageFilter filter = new ExpressionMessageFilter(made, null, new ConsumerFilterManager());
        List<Object> found = new ArrayList<>();
        for (JsonObject each : objects(question, "cases")) {
            long code = MessageExtBrokerInner.tagsString2tagsCode(text(each, "tag"));
            boolean passes = filter.isMatchedByConsumeQueue(code, null) && filter.isMatchedByCommitLog(null, null);
            found.add(Arrays.asList(code, passes));
        }
        return found;
    }

    static Object bloom(JsonObject question) {
        BloomFilter bloom;
        try {
            bloom = BloomFilter.createByFn(question.get("f").getAsInt(), question.get("n").getAsInt());
        } catch (Exception refused) {
            return null;
        }
        if (!question.has("keys")) {
            String key = text(question, "key");
            return Arrays.asList(bloom.getK(), bloom.getM(), key == null ? null : bloom.calcBitPositions(key));
        }
        BitsArray bits = BitsArray.create(bloom.getM());
        question.getAsJsonArray("keys").forEach(key -> bloom.hashTo(key.getAsString(), bits));
        List<Object> hits = new ArrayList<>();
        objects(question, "probes").forEach(probe -> hits.add(bloom.isHit(text(probe, "key"), bits)));
        return Arrays.asList(hex(bits.bytes()), hits);
    }

    static String hex(byte[] bytes) {
        StringBuilder digits = new StringBuilder();
        for (byte each : bytes) {
            digits.append(String.format("%02x", each));
        }
        return digits.toString();
    }

    static ConsumerFilterManager manager(JsonObject question) throws Exception {
        ConsumerFilterManager manager = new ConsumerFilterManager();
        Field bloom = ConsumerFilterManager.class.getDeclaredField("bloomFilter");
        bloom.setAccessible(true);
        bloom.set(manager, BloomFilter.createByFn(question.get("f").getAsInt(), question.get("n").getAsInt()));
        return manager;
    }

    static SubscriptionData subscription(JsonObject given, String expression, String version) {
        SubscriptionData made = new SubscriptionData();
        made.setTopic(text(given, "topic"));
        made.setSubString(text(given, expression));
        made.setExpressionType(text(given, "type"));
        made.setSubVersion(given.get(version).getAsLong());
        return made;
    }

    static Object registry(JsonObject question) throws Exception {
        ConsumerFilterManager manager = manager(question);
        List<Object> steps = new ArrayList<>();
        for (JsonObject step : objects(question, "steps")) {
            JsonObject event = step.getAsJsonObject("event");
            if (text(event, "op").equals("register")) {
                List<SubscriptionData> made = new ArrayList<>();
                objects(event, "subs").forEach(each -> made.add(subscription(each, "expression", "version")));
                manager.register(text(event, "group"), made);
            } else {
                manager.unRegister(text(event, "group"));
            }
            List<Object> state = new ArrayList<>();
            new TreeMap<>(manager.getFilterDataByTopic()).forEach((topic, byGroup) ->
                new TreeMap<>(byGroup.getGroupFilterData()).forEach((group, data) -> state.add(Arrays.asList(
                    topic, group, data.getExpression(), data.getExpressionType(), data.getClientVersion(),
                    data.isDead(), data.getBloomFilterData().getBitPos(), data.getBloomFilterData().getBitNum()))));
            steps.add(Arrays.asList(state, new TreeSet<>(manager.getFilterDataByTopic().keySet())));
        }
        return steps;
    }

    static Object groupInfo(JsonObject question) {
        ConsumerGroupInfo info = new ConsumerGroupInfo("g", ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        List<Object> steps = new ArrayList<>();
        for (JsonObject step : objects(question, "steps")) {
            Set<SubscriptionData> made = new LinkedHashSet<>();
            objects(step, "subs").forEach(each -> made.add(subscription(each, "subString", "subVersion")));
            boolean isUpdated = info.updateSubscription(made);
            List<Object> table = new ArrayList<>();
            new TreeMap<>(info.getSubscriptionTable()).forEach((topic, each) -> table.add(
                Arrays.asList(topic, each.getSubString(), each.getExpressionType(), each.getSubVersion())));
            steps.add(Arrays.asList(isUpdated, table));
        }
        return steps;
    }

    static Object dispatch(JsonObject question) throws Exception {
        ConsumerFilterManager manager = manager(question);
        String topic = text(question, "topic");
        for (JsonObject each : objects(question, "subscriptions")) {
            String group = text(each, "group");
            manager.register(topic, group, text(each, "expression"), "SQL92", 1L);
            if (each.has("dead") && each.get("dead").getAsBoolean()) {
                manager.unRegister(group);
            }
        }
        BrokerConfig config = new BrokerConfig();
        config.setEnableCalcFilterBitMap(true);
        CommitLogDispatcherCalcBitMap dispatcher = new CommitLogDispatcherCalcBitMap(config, manager);
        long stored = System.currentTimeMillis() + 60_000;
        List<Object> found = new ArrayList<>();
        for (JsonObject message : objects(question, "messages")) {
            Map<String, String> properties = properties(message);
            DispatchRequest request =
                new DispatchRequest(topic, 0, 0L, 100, 0L, stored, 0L, "", "", 0, 0L, properties);
            dispatcher.dispatch(request);
            ConsumeQueueExt.CqExtUnit unit = new ConsumeQueueExt.CqExtUnit(0L, stored, request.getBitMap());
            List<String> hits = new ArrayList<>();
            List<String> delivered = new ArrayList<>();
            for (JsonObject each : objects(question, "subscriptions")) {
                ConsumerFilterData data = manager.get(topic, text(each, "group"));
                if (data == null) {
                    continue;
                }
                SubscriptionData made = new SubscriptionData(topic, data.getExpression());
                made.setExpressionType("SQL92");
                ExpressionMessageFilter filter = new ExpressionMessageFilter(made, data, manager);
                if (filter.isMatchedByConsumeQueue(0L, unit)) {
                    hits.add(text(each, "group"));
                    if (filter.isMatchedByCommitLog(null, properties)) {
                        delivered.add(text(each, "group"));
                    }
                }
            }
            found.add(Arrays.asList(request.getBitMap() == null ? null : hex(request.getBitMap()), hits, delivered));
        }
        return found;
    }

    /** The second stage of a redelivery of the group cg, whose message was of the topic T. */
    static Object retry(JsonObject question) throws Exception {
        ConsumerFilterManager manager = new ConsumerFilterManager();
        String retryTopic = "%RETRY%cg";
        if (text(question, "registered") != null) {
            manager.register("T", "cg", text(question, "registered"), "SQL92", 1L);
        }
        String type = text(question, "type");
        String expression = text(question, "expression");
        SubscriptionData made;
        ConsumerFilterData data = null;
        if (type.equals("SQL92")) {
            made = new SubscriptionData(retryTopic, expression);
            made.setExpressionType(type);
            data = ConsumerFilterManager.build(retryTopic, "cg", expression, type, 1L);
        } else {
            made = FilterAPI.buildSubscriptionData(retryTopic, expression);
        }
        ExpressionMessageFilter filter = question.get("filterSupportRetry").getAsBoolean()
            ? new ExpressionForRetryMessageFilter(made, data, manager)
            : new ExpressionMessageFilter(made, data, manager);
        try {
            return String.valueOf(filter.isMatchedByCommitLog(null, properties(question)));
        } catch (Throwable fails) {
            return fails.getClass().getSimpleName();
        }
    }

    static Object namespaces(JsonObject question) {
        String namespace = text(question, "namespace");
        String resource = text(question, "resource");
        return Arrays.asList(
            NamespaceUtil.wrapNamespace(namespace, resource),
            NamespaceUtil.wrapNamespaceAndRetry(namespace, resource),
            NamespaceUtil.withoutNamespace(resource),
            NamespaceUtil.getNamespaceFromResource(resource));
    }
}
