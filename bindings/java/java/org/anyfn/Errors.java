package org.anyfn;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.CancellationException;
import java.util.concurrent.TimeoutException;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Conversion between native errors and exceptions. */
final class Errors {
  private static final int CAUSES_MAX = 32;
  private static final int LINES_MAX = 64;
  private static final Pattern FRAME = Pattern.compile("\\s*File \"(.*)\", line (\\d+), in (.*)");

  private Errors() {}

  /** Makes the exception of a native error, whose reference passes to it. */
  static Throwable take(long error) {
    Throwable exception;
    try {
      exception = Native.errorException(error);
      if (exception == null) {
        exception = make(error);
      }
    } catch (Throwable failure) {
      Native.release(error);
      throw failure;
    }
    Native.release(error);
    return exception;
  }

  /** Makes an exception, which has a reference of its own. */
  private static Throwable make(long error) {
    String kind = Value.text(Native.errorText(error, 0));
    String message = Value.text(Native.errorText(error, 1));
    String backtrace = Value.text(Native.errorText(error, 2));
    long cause = Native.errorCause(error);
    AnyfnException exception = AnyfnException.make(kind, message, cause == 0 ? null : take(cause));
    // The reference passes to the object, also if the stack or the memory ends here.
    Native.retain(error);
    exception.error = new ObjectRef(error, Value.ERROR);
    List<StackTraceElement> frames = new ArrayList<>();
    for (String line : backtrace.split("\n", LINES_MAX + 1)) {
      Matcher parts = FRAME.matcher(line);
      if (frames.size() < LINES_MAX && parts.matches()) {
        frames.add(frame(parts));
      }
    }
    // The package's own frames say nothing about the error.
    String own = Errors.class.getPackageName() + ".";
    boolean isOwn = true;
    for (StackTraceElement element : exception.getStackTrace()) {
      isOwn = isOwn && element.getClassName().startsWith(own) && isPackage(element.getClassName());
      if (!isOwn) {
        frames.add(element);
      }
    }
    exception.setStackTrace(frames.toArray(StackTraceElement[]::new));
    return exception;
  }

  private static boolean isPackage(String name) {
    return switch (name.substring(name.lastIndexOf('.') + 1)) {
      case "Errors", "Native", "Frame", "AnyfnException", "Lift", "Globals" -> true;
      default -> name.contains("AnyfnException");
    };
  }

  private static StackTraceElement frame(Matcher parts) {
    int line;
    try {
      line = Integer.parseInt(parts.group(2));
    } catch (NumberFormatException error) {
      line = -1;
    }
    return new StackTraceElement("native", parts.group(3), parts.group(1), line);
  }

  /** Converts an exception to a native error, and returns a reference of it. */
  static long toNative(Throwable exception) {
    return toNative(exception, CAUSES_MAX);
  }

  private static long toNative(Throwable exception, int causes) {
    if (exception instanceof AnyfnException known && known.error != null) {
      long error = known.error.enter();
      try {
        return Native.keepException(error, utf8(traceOf(exception)), exception);
      } finally {
        known.error.handle.leave();
      }
    }
    long cause = exception.getCause() != null && causes > 0 ? toNative(exception.getCause(), causes - 1) : 0;
    try {
      return Native.makeError(utf8(kindOf(exception)), utf8(messageOf(exception)), utf8(traceOf(exception)), cause, exception);
    } finally {
      if (cause != 0) {
        Native.release(cause);
      }
    }
  }

  /** Returns a text in UTF-8, in which question marks replace lone surrogates. */
  private static byte[] utf8(String text) {
    return text.getBytes(java.nio.charset.StandardCharsets.UTF_8);
  }

  private static String kindOf(Throwable exception) {
    if (exception instanceof AnyfnException known) {
      return known.kind();
    }
    if (exception instanceof CancellationException) {
      return "CancelledError";
    }
    if (exception instanceof ClassCastException) {
      return "TypeError";
    }
    if (exception instanceof IndexOutOfBoundsException) {
      return "IndexError";
    }
    if (exception instanceof NoSuchElementException) {
      return "KeyError";
    }
    if (exception instanceof UnsupportedOperationException) {
      return "NotImplementedError";
    }
    if (exception instanceof VirtualMachineError) {
      return "MemoryError";
    }
    if (exception instanceof IllegalArgumentException) {
      return "ValueError";
    }
    if (exception instanceof TimeoutException) {
      return "TimeoutError";
    }
    if (exception instanceof IOException) {
      return "OSError";
    }
    if (exception instanceof IllegalStateException || exception.getClass() == RuntimeException.class) {
      return "RuntimeError";
    }
    return exception.getClass().getName();
  }

  private static String messageOf(Throwable exception) {
    try {
      String message = exception.getMessage();
      return message != null ? message : exception.getClass().getName();
    } catch (Throwable failure) {
      // The method may be one of the program.
      return exception.getClass().getName();
    }
  }

  private static String traceOf(Throwable exception) {
    StringBuilder text = new StringBuilder();
    int lines = 0;
    for (StackTraceElement element : exception.getStackTrace()) {
      if (++lines > LINES_MAX) {
        break;
      }
      String file = element.getFileName() != null ? element.getFileName() : element.getClassName();
      String name = element.getClassName() + "." + element.getMethodName();
      text.append("  File \"").append(file).append("\", line ").append(Math.max(element.getLineNumber(), 0)).append(", in ").append(name).append('\n');
    }
    return text.toString();
  }

  /** Throws an exception that may be a checked one. */
  @SuppressWarnings("unchecked")
  static <T extends Throwable> T sneaky(Throwable exception) throws T {
    throw (T) exception;
  }
}
