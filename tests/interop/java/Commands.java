import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.embedded.EmbeddedChannel;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.remoting.exception.RemotingCommandException;
import org.apache.rocketmq.remoting.netty.NettyDecoder;
import org.apache.rocketmq.remoting.netty.NettyEncoder;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/** Frames through the very handlers that stand in RocketMQ's network pipeline. */
final class Commands {
    private Commands() {
    }

    /** Chunks of one connection's bytes, cut anywhere, to the commands they hold. */
    static List<Object> decode(List<Object> chunks) throws RemotingCommandException {
        List<Object> commands = new ArrayList<>();
        for (RemotingCommand command : read(chunks)) {
            commands.add(describe(command));
        }
        return commands;
    }

    static List<RemotingCommand> read(List<Object> chunks) throws RemotingCommandException {
        EmbeddedChannel channel = new EmbeddedChannel(new NettyDecoder());
        List<RemotingCommand> commands = new ArrayList<>();
        try {
            for (Object chunk : chunks) {
                channel.writeInbound(Unpooled.wrappedBuffer((byte[]) chunk));
                for (RemotingCommand next; (next = channel.readInbound()) != null; ) {
                    commands.add(next);
                }
                if (!channel.isOpen()) { // the handler logs why and closes; ask again for the reason
                    byte[] frame = (byte[]) chunk;
                    RemotingCommand.decode(Unpooled.wrappedBuffer(frame, 4, frame.length - 4));
                    throw new IllegalStateException("closed after " + commands.size() + " commands");
                }
            }
            return commands;
        } finally {
            channel.finishAndReleaseAll();
        }
    }

    static byte[] encode(Map<String, Object> item) {
        RemotingCommand command =
            RemotingCommand.createResponseCommand(CodecPeer.integer(item, "code"), (String) item.get("remark"));
        command.setFlag(CodecPeer.integer(item, "flag"));
        command.setOpaque(CodecPeer.integer(item, "opaque"));
        command.setVersion(CodecPeer.integer(item, "version"));
        String language = (String) item.get("language");
        command.setLanguage(language == null ? null : LanguageCode.valueOf(language));
        if (item.get("fields") != null) {
            HashMap<String, String> fields = new HashMap<>();
            CodecPeer.map(item.get("fields")).forEach((name, value) -> fields.put(name, (String) value));
            command.setExtFields(fields);
        }
        command.setBody((byte[]) item.get("body"));
        return bytes(command, (String) item.get("type"));
    }

    /** The frame as it goes onto the wire; the encoder behind file answers has to agree with it. */
    static byte[] bytes(RemotingCommand command, String type) {
        command.setSerializeTypeCurrentRPC(SerializeType.valueOf(type));
        EmbeddedChannel channel = new EmbeddedChannel(new NettyEncoder());
        try {
            if (!channel.writeOutbound(command)) {
                throw new IllegalStateException("NettyEncoder wrote nothing");
            }
            ByteBuf written = channel.readOutbound();
            byte[] frame = new byte[written.readableBytes()];
            written.readBytes(frame);
            written.release();
            return frame;
        } finally {
            channel.finishAndReleaseAll();
        }
    }

    static Map<String, Object> describe(RemotingCommand command) {
        Map<String, Object> value = new LinkedHashMap<>();
        value.put("code", command.getCode());
        value.put("language", command.getLanguage() == null ? null : command.getLanguage().name());
        value.put("version", command.getVersion());
        value.put("opaque", command.getOpaque());
        value.put("flag", command.getFlag());
        value.put("remark", command.getRemark());
        value.put("fields", command.getExtFields());
        value.put("body", command.getBody());
        value.put("type", command.getSerializeTypeCurrentRPC().name());
        return value;
    }
}
