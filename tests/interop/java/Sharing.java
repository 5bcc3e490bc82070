import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/** RocketMQ's own strategies of who has which queue. */
final class Sharing {
    private Sharing() {
    }

    /** The strategy of an item; `queues` are for those that are told outright, `rooms` for those that look at them. */
    static AllocateMessageQueueStrategy strategy(Map<String, Object> item) {
        switch ((String) item.get("strategy")) {
            case "averagely":
                return new AllocateMessageQueueAveragely();
            case "by circle":
                return new AllocateMessageQueueAveragelyByCircle();
            case "config":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues(item));
                return config;
            case "machine room":
                AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
                room.setConsumeridcs(new HashSet<>(strings(item.get("rooms"))));
                return room;
            case "machine room nearby":
                return new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms());
            case "consistent hash":
                return new AllocateMessageQueueConsistentHash();
            default:
                throw new IllegalArgumentException((String) item.get("strategy"));
        }
    }

    /** Even queues are in the north, odd ones in the south; so are members, by the last digit of their names. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return room(queue.getQueueId());
        }

        @Override
        public String consumerDeployIn(String clientId) {
            return room(clientId.charAt(clientId.length() - 1) - '0');
        }

        private static String room(int number) {
            return number % 2 == 0 ? "north" : "south";
        }
    }

    private static List<MessageQueue> queues(Map<String, Object> item) {
        List<MessageQueue> queues = new ArrayList<>();
        for (Object number : CodecPeer.list(item.get("queues"))) {
            int id = ((Number) number).intValue();
            queues.add(new MessageQueue((String) item.get("topic"), (String) item.get("broker"), id));
        }
        return queues;
    }

    private static List<String> strings(Object values) {
        List<String> texts = new ArrayList<>();
        for (Object value : CodecPeer.list(values)) {
            texts.add((String) value);
        }
        return texts;
    }
}
