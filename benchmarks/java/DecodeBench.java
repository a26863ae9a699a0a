import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** Decodes a commit log file once for each line of input ("true": with bodies); answers messages and nanoseconds. */
public class DecodeBench {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // RocketMQ's logging tells there how it was set up.
        try (FileChannel file = FileChannel.open(Path.of(arguments[0]))) {
            MappedByteBuffer log = file.map(FileChannel.MapMode.READ_ONLY, 0, file.size());
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                boolean body = Boolean.parseBoolean(line);
                long start = System.nanoTime();
                long messages = 0;
                log.rewind();
                while (log.hasRemaining()) {
                    MessageExt message = MessageDecoder.decode(log, body, false);
                    if (message == null) {
                        throw new IllegalStateException("message " + messages + " cannot be decoded");
                    }
                    messages++;
                }
                answers.println(messages + " " + (System.nanoTime() - start));
            }
        }
    }
}
