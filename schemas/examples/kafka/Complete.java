// Asks the cache over Kafka, with Kafka's own client alone. Without a build, Java 17 on:
//     java -cp kafka-clients.jar:slf4j-api.jar Complete.java BROKERS NAMESPACE QUESTION [ROLE]
// With a ROLE it asks by the namespace's grant of it.
// The bytes are those of schemas/README.md, by hand; an Avro library does as well.
import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Complete {
    static final Duration LONGEST_WAIT = Duration.ofMinutes(1);
    // Avro single object, commands 0.3.0.
    static final byte[] COMMANDS = HexFormat.of().parseHex("c301f4892ebe806feffa");
    static final int COMPLETE = 2, ANSWERED = 2;
    static final String[] OUTCOMES = {
        "?", "hit_exact", "hit_semantic", "hit_chunk", "miss", "bypass"
    };

    public static void main(String[] args) throws Exception {
        String brokers = args[0], namespace = args[1], question = args[2];
        String grant = args.length > 3 ? "." + namespace + "." + args[3] : "";
        // All that a grant lets it use.
        String group = grant.isEmpty() ? "" : "cachemind.client" + grant + ":";
        // Sent again with the same id, it is answered so again and done once.
        UUID request = UUID.randomUUID();
        byte[] correlation = request.toString().getBytes(UTF_8);
        var bytes = new ByteArraySerializer();
        var read = new ByteArrayDeserializer();
        Map<String, Object> consumes =
                Map.of(
                        "bootstrap.servers", brokers,
                        "group.id", group + request,
                        "auto.offset.reset", "earliest",
                        "isolation.level", "read_committed");
        try (var answers = new KafkaConsumer<>(consumes, read, read);
                var producer =
                        new KafkaProducer<>(
                                Map.<String, Object>of("bootstrap.servers", brokers),
                                bytes,
                                bytes)) {
            answers.subscribe(List.of("cachemind.replies" + grant));
            var record =
                    new ProducerRecord<>(
                            "cachemind.requests" + grant,
                            namespace.getBytes(UTF_8),
                            command(request, namespace, question));
            byte[] replies = ("cachemind.replies" + grant).getBytes(UTF_8);
            record.headers().add("reply-to", replies);
            record.headers().add("correlation-id", correlation);
            producer.send(record).get();
            long until = System.nanoTime() + LONGEST_WAIT.toNanos();
            while (System.nanoTime() < until) {
                for (var answer : answers.poll(Duration.ofSeconds(1))) {
                    if (java.util.Arrays.equals(answer.key(), correlation)) {
                        System.out.println(shown(ByteBuffer.wrap(answer.value())));
                        return;
                    }
                }
            }
        }
        System.err.println("no answer came; cachemind dlq list may say why");
        System.exit(1);
    }

    static byte[] command(UUID request, String namespace, String question) {
        String quoted = question.replace("\\", "\\\\").replace("\"", "\\\"");
        String body =
                "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\""
                        + quoted
                        + "\"}]}";
        var out = new ByteArrayOutputStream();
        out.writeBytes(COMMANDS);
        out.writeBytes(
                ByteBuffer.allocate(16)
                        .putLong(request.getMostSignificantBits())
                        .putLong(request.getLeastSignificantBits())
                        .array());
        text(out, namespace);
        number(out, COMPLETE);
        text(out, body);
        text(out, ""); // cache_control
        text(out, ""); // mode
        number(out, 0); // no threshold
        number(out, 0); // no ttl_s
        return out.toByteArray();
    }

    static void number(ByteArrayOutputStream out, long value) {
        long rest = (value << 1) ^ (value >> 63);
        for (; (rest & ~0x7FL) != 0; rest >>>= 7) out.write((int) (rest & 0x7F | 0x80));
        out.write((int) rest);
    }

    static void text(ByteArrayOutputStream out, String value) {
        byte[] written = value.getBytes(UTF_8);
        number(out, written.length);
        out.writeBytes(written);
    }

    static String shown(ByteBuffer reply) {
        skip(reply, 10 + 16); // the schema's fingerprint, request_id
        text(reply); // namespace
        skip(reply, 16); // trace_id
        if (number(reply) == 1) { // lsn
            number(reply);
            number(reply);
        }
        if (number(reply) != ANSWERED) {
            number(reply); // a Problem: its code
            return "problem " + text(reply) + " " + text(reply);
        }
        String outcome = OUTCOMES[(int) number(reply)];
        text(reply); // reason
        skip(reply, 32 * (int) number(reply)); // key
        skip(reply, 8 * (int) number(reply)); // similarity
        number(reply); // status
        skip(reply, 1); // stored
        return outcome + " " + text(reply);
    }

    static void skip(ByteBuffer reply, int size) {
        reply.position(reply.position() + size);
    }

    static long number(ByteBuffer reply) {
        long value = 0;
        for (int shift = 0; ; shift += 7) {
            byte next = reply.get();
            value |= (long) (next & 0x7F) << shift;
            if (next >= 0) return (value >>> 1) ^ -(value & 1);
        }
    }

    static String text(ByteBuffer reply) {
        byte[] read = new byte[(int) number(reply)];
        reply.get(read);
        return new String(read, UTF_8);
    }
}
