package strata.interop;

import java.io.PrintStream;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.TopicConfig;

/**
 * What a real broker keeps of topics and groups. The classes of a group's settings lie in another package in 5.x, and
 * 4.x has neither types of topics nor ordered groups: fields that a version does not have are null.
 */
final class Settings {
    private Settings() {
    }

    /** Changes what the options name, as an administrator's request would. */
    static void change(BrokerController controller, Options options) throws Exception {
        if (options.has("group")) {
            Object manager = controller.getSubscriptionGroupManager();
            for (Method method : manager.getClass().getMethods()) {
                if (method.getName().equals("updateSubscriptionGroupConfig") && method.getParameterCount() == 1) {
                    Object group = method.getParameterTypes()[0].getConstructor().newInstance();
                    Compat.set(group, "groupName", options.text("group", ""));
                    Compat.set(group, "retryMaxTimes", options.integer("retries", 16));
                    Compat.set(group, "consumeEnable", !options.has("disabled"));
                    Compat.set(group, "consumeMessageOrderly", options.has("ordered"));
                    method.invoke(manager, group);
                }
            }
        }
        if (options.has("typed-topic")) {
            TopicConfig topic = new TopicConfig(options.text("typed-topic", ""), 1, 1, 6);
            Map<String, String> attributes = new HashMap<>();
            attributes.put("+message.type", options.text("type", "NORMAL"));
            topic.getClass().getMethod("setAttributes", Map.class).invoke(topic, attributes);
            controller.getTopicConfigManager().updateTopicConfig(topic);
        }
    }

    /** A line for each topic, and one for each group. */
    static void report(BrokerController controller, PrintStream out) throws Exception {
        for (TopicConfig topic : controller.getTopicConfigManager().getTopicConfigTable().values()) {
            Object attributes = Compat.getField(topic, "attributes");
            Object type = attributes instanceof Map ? ((Map<?, ?>) attributes).get("message.type") : null;
            out.println(Json.of("topic").put("topic", topic.getTopicName()).put("type", type));
        }
        for (Object group : controller.getSubscriptionGroupManager().getSubscriptionGroupTable().values()) {
            out.println(Json.of("group")
                .put("group", Compat.getField(group, "groupName"))
                .put("retries", Compat.getField(group, "retryMaxTimes"))
                .put("enabled", Compat.getField(group, "consumeEnable"))
                .put("ordered", Compat.getField(group, "consumeMessageOrderly")));
        }
        out.flush();
    }
}
