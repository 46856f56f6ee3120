package org.anyfn;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** A call on another thread. */
final class AsyncCall extends CompletableFuture<Object> {
  /** Maximum number of threads; further calls wait for one of them. */
  private static final int THREADS_MAX = 256;
  /** Threads for calls, which end when they have been idle. */
  static final Executor EXECUTOR = executor();

  /** An {@code int} that native code reads: not zero after the call was cancelled. */
  private final ByteBuffer flag = ByteBuffer.allocateDirect(4).order(ByteOrder.nativeOrder());

  private static Executor executor() {
    ThreadPoolExecutor executor =
        new ThreadPoolExecutor(
            THREADS_MAX,
            THREADS_MAX,
            2,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            task -> {
              Thread thread = new Thread(null, task, "anyfn-call", 0, false);
              thread.setDaemon(true);
              return thread;
            });
    executor.allowCoreThreadTimeOut(true);
    return executor;
  }

  static AsyncCall start(Executor executor, Function function, Object[] args) {
    // The arguments and the function stay alive although they may be closed or changed meanwhile.
    ArrayRef converted = ArrayRef.of(args);
    try {
      AsyncCall call = new AsyncCall();
      Function kept = new Function(function.retained());
      executor.execute(() -> call.run(kept, converted));
      return call;
    } catch (Throwable failure) {
      converted.close();
      throw failure;
    }
  }

  private void run(Function function, ArrayRef args) {
    try (function; args) {
      if (isDone()) {
        return;
      }
      long before = Native.setFlag(Native.address(flag));
      try {
        complete(function.invoke(args.toArray()));
      } finally {
        Native.setFlag(before);
      }
    } catch (Throwable exception) {
      completeExceptionally(exception);
    }
  }

  @Override
  public boolean cancel(boolean mayInterruptIfRunning) {
    flag.putInt(0, 1);
    return super.cancel(mayInterruptIfRunning);
  }
}
