import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command line tools one after another in one JVM, each as if it had one of its own.
 *
 * A request is a count of texts, then the name of a class, what it reads from standard input, and its arguments; the
 * answer is its status, its output and its errors. A text is its size and its bytes. It ends with its standard input.
 */
public class KafkaTools {
    private static Integer status;

    public static void main(String[] ignored) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        try {
            while (true) answer(requests, answers);
        } catch (EOFException over) {
            Runtime.getRuntime().halt(0);
        }
    }

    private static void answer(DataInputStream requests, DataOutputStream answers) throws Exception {
        List<byte[]> texts = new ArrayList<>();
        for (int left = requests.readInt(); left > 0; left--) texts.add(requests.readNBytes(requests.readInt()));
        String name = new String(texts.get(0));
        String[] arguments = texts.stream().skip(2).map(String::new).toArray(String[]::new);
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(texts.get(1)));
        answers.writeInt(run(name, arguments, new PrintStream(output, true), new PrintStream(errors, true)));
        write(answers, output);
        write(answers, errors);
        answers.flush();
    }

    private static int run(String name, String[] arguments, PrintStream out, PrintStream err) throws Exception {
        List<Runnable> hooks = new ArrayList<>();
        status = null;
        System.setOut(out);
        System.setErr(err);
        Exit.setExitProcedure(KafkaTools::exit);
        Exit.setHaltProcedure(KafkaTools::exit);
        Exit.setShutdownHookAdder((of, hook) -> hooks.add(hook));
        try (Fresh loader = new Fresh()) {
            Thread.currentThread().setContextClassLoader(loader);
            loader.loadClass(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (status == null) {
                thrown.getCause().printStackTrace();
                status = 1;
            }
        }
        System.setOut(out);
        System.setErr(err);
        hooks.forEach(Runnable::run);
        return status == null ? 0 : status;
    }

    private static void exit(int code, String message) {
        if (status == null) status = code;
        PrintStream nobody = new PrintStream(OutputStream.nullOutputStream());  // the tool may catch this error
        System.setOut(nobody);
        System.setErr(nobody);
        throw new Error("the tool ends");
    }

    private static void write(DataOutputStream answers, ByteArrayOutputStream text) throws IOException {
        answers.writeInt(text.size());
        text.writeTo(answers);
    }

    /** Loads the tools anew for each run, as they keep state in static fields; Kafka's clients are loaded once. */
    private static class Fresh extends URLClassLoader {
        Fresh() throws IOException {
            super(jars(), ClassLoader.getSystemClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("org.apache.kafka.tools.") && !name.startsWith("kafka.")) {
                return super.loadClass(name, resolve);
            }
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                return loaded == null ? findClass(name) : loaded;
            }
        }

        private static URL[] jars() throws IOException {
            List<URL> jars = new ArrayList<>();
            for (String path : System.getProperty("java.class.path").split(":")) {
                String file = Path.of(path).getFileName().toString();
                if (file.startsWith("kafka-tools-") || file.startsWith("kafka_")) jars.add(Path.of(path).toUri().toURL());
            }
            return jars.toArray(URL[]::new);
        }
    }
}
