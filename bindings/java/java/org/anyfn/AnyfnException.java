package org.anyfn;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;
import org.jspecify.annotations.Nullable;

/**
 * An error of native code, or of another language. Its {@link #kind} is the name of its class there, such as {@code ValueError}.
 *
 * <p>Frequent kinds have subclasses here; {@link #register} adds a class for another kind. The stack trace begins with the native frames.
 */
public class AnyfnException extends RuntimeException {
  private static final long serialVersionUID = 1;
  private static final Map<String, BiFunction<String, @Nullable Throwable, ? extends AnyfnException>> CLASSES = new ConcurrentHashMap<>();

  static {
    register("ValueError", ValueError::new);
    register("TypeError", TypeError::new);
    register("RuntimeError", RuntimeError::new);
    register("KeyError", KeyError::new);
    register("IndexError", IndexError::new);
    register("AttributeError", AttributeError::new);
    register("NotImplementedError", NotImplementedError::new);
    register("MemoryError", MemoryError::new);
    register("PermissionError", PermissionError::new);
    register("ConnectionError", ConnectionError::new);
    register("TimeoutError", TimeoutError::new);
    register("OSError", OSError::new);
    register("CancelledError", CancelledError::new);
    register("InternalError", InternalError::new);
  }

  /** Kind of the error. */
  private final String kind;
  /** The native error, if the exception comes from native code. */
  transient ObjectRef error;

  /**
   * Makes an error of a kind.
   *
   * @param kind the kind, the name of a class of errors
   * @param message the message
   * @param cause the cause, or null
   */
  public AnyfnException(String kind, String message, @Nullable Throwable cause) {
    super(message, cause);
    this.kind = kind;
  }

  /**
   * Returns the kind of the error, such as {@code ValueError}.
   *
   * @return the kind
   */
  public String kind() {
    return kind;
  }

  @Override
  public String toString() {
    String message = getLocalizedMessage();
    return message == null || message.isEmpty() ? kind : kind + ": " + message;
  }

  /**
   * Registers the class of the errors of a kind: native errors of this kind become exceptions that {@code make} returns.
   *
   * @param kind the kind
   * @param make a function from message and cause to an exception, whose {@link #kind} must be {@code kind}. If it returns null, the
   *     exception is a plain {@code AnyfnException}
   */
  public static void register(String kind, BiFunction<String, @Nullable Throwable, ? extends AnyfnException> make) {
    CLASSES.put(kind, make);
  }

  /** Makes the exception of a kind. */
  static AnyfnException make(String kind, String message, @Nullable Throwable cause) {
    BiFunction<String, @Nullable Throwable, ? extends AnyfnException> make = CLASSES.get(kind);
    AnyfnException made = make != null ? make.apply(message, cause) : null;
    return made != null ? made : new AnyfnException(kind, message, cause);
  }

  /** A value of the right type is not acceptable. */
  public static class ValueError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public ValueError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public ValueError(String message, @Nullable Throwable cause) {
      super("ValueError", message, cause);
    }
  }

  /** An argument has the wrong type, or their number is wrong. */
  public static class TypeError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public TypeError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public TypeError(String message, @Nullable Throwable cause) {
      super("TypeError", message, cause);
    }
  }

  /** An error of no more specific kind. */
  public static class RuntimeError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public RuntimeError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public RuntimeError(String message, @Nullable Throwable cause) {
      super("RuntimeError", message, cause);
    }
  }

  /** A mapping has no such key. */
  public static class KeyError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public KeyError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public KeyError(String message, @Nullable Throwable cause) {
      super("KeyError", message, cause);
    }
  }

  /** An index is out of range. */
  public static class IndexError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public IndexError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public IndexError(String message, @Nullable Throwable cause) {
      super("IndexError", message, cause);
    }
  }

  /** An object has no such field or method. */
  public static class AttributeError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public AttributeError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public AttributeError(String message, @Nullable Throwable cause) {
      super("AttributeError", message, cause);
    }
  }

  /** The operation is not supported. */
  public static class NotImplementedError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public NotImplementedError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public NotImplementedError(String message, @Nullable Throwable cause) {
      super("NotImplementedError", message, cause);
    }
  }

  /** There is not enough memory. */
  public static class MemoryError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public MemoryError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public MemoryError(String message, @Nullable Throwable cause) {
      super("MemoryError", message, cause);
    }
  }

  /** The caller may not do this. */
  public static class PermissionError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public PermissionError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public PermissionError(String message, @Nullable Throwable cause) {
      super("PermissionError", message, cause);
    }
  }

  /** A session cannot be opened, or has ended. */
  public static class ConnectionError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public ConnectionError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public ConnectionError(String message, @Nullable Throwable cause) {
      super("ConnectionError", message, cause);
    }
  }

  /** The time limit has passed. */
  public static class TimeoutError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public TimeoutError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public TimeoutError(String message, @Nullable Throwable cause) {
      super("TimeoutError", message, cause);
    }
  }

  /** The operating system refused an operation. */
  public static class OSError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public OSError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public OSError(String message, @Nullable Throwable cause) {
      super("OSError", message, cause);
    }
  }

  /** The call was cancelled. */
  public static class CancelledError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public CancelledError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public CancelledError(String message, @Nullable Throwable cause) {
      super("CancelledError", message, cause);
    }
  }

  /** A defect of the runtime. */
  public static class InternalError extends AnyfnException {
    private static final long serialVersionUID = 1;

    /**
     * Makes an error.
     *
     * @param message the message
     */
    public InternalError(String message) {
      this(message, null);
    }

    /**
     * Makes an error with a cause.
     *
     * @param message the message
     * @param cause the cause, or null
     */
    public InternalError(String message, @Nullable Throwable cause) {
      super("InternalError", message, cause);
    }
  }
}
