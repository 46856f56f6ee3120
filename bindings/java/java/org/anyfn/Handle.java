package org.anyfn;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A reference to a native object, which is released when its Java object is closed or collected, but never while it is in use.
 *
 * <p>This does what {@link java.lang.ref.Cleaner} does, except that no thread refers to the class loader of this package when no object
 * was made for a while, so that the class loader can be unloaded. The class loader of the program never is, and its thread stays.
 */
final class Handle extends PhantomReference<Object> {
  private static final int CLOSED = 1 << 30;
  /**
   * Time in milliseconds after which the thread ends if no objects are made or collected, and no native object refers to a Java object.
   * Such an object keeps the class loader alive anyway.
   */
  private static final long IDLE = Long.getLong("org.anyfn.idle", 2000);

  /** True if the class loader is never unloaded, so that the thread need not end. */
  private static final boolean IS_PERMANENT = Handle.class.getClassLoader() == ClassLoader.getSystemClassLoader();

  private static final VarHandle STATE;
  private static final ReferenceQueue<Object> QUEUE = new ReferenceQueue<>();
  private static final AtomicBoolean HAS_THREAD = new AtomicBoolean();
  private static volatile boolean isActive;
  /** Lists of all handles, which keep them alive. Several, so that threads rarely wait for each other. */
  private static final Handle[] LISTS = new Handle[16];

  static {
    try {
      STATE = MethodHandles.lookup().findVarHandle(Handle.class, "state", int.class);
    } catch (ReflectiveOperationException error) {
      throw new ExceptionInInitializerError(error);
    }
    for (int list = 0; list < LISTS.length; list++) {
      LISTS[list] = new Handle();
    }
  }

  private final long address;
  private final Handle list;
  private Handle next;
  private Handle previous;
  /** Number of uses; {@link #CLOSED} is added when the object is closed. */
  @SuppressWarnings("unused")
  private volatile int state;

  /** Makes the head of a list. */
  private Handle() {
    super(null, null);
    address = 0;
    list = this;
    next = this;
    previous = this;
  }

  private Handle(Object owner, long address, Handle list) {
    super(owner, QUEUE);
    this.address = address;
    this.list = list;
  }

  @SuppressWarnings("deprecation") // `threadId` exists since JDK 19.
  private static Handle listOfThread() {
    return LISTS[(int) Thread.currentThread().getId() & (LISTS.length - 1)];
  }

  /** Makes the handle of a Java object. The reference of the native object passes to it. */
  static Handle of(Object owner, long address) {
    Handle handle;
    try {
      handle = new Handle(owner, address, listOfThread());
    } catch (Throwable failure) {
      Native.release(address);
      throw failure;
    }
    synchronized (handle.list) {
      handle.next = handle.list.next;
      handle.previous = handle.list;
      handle.next.previous = handle;
      handle.list.next = handle;
    }
    sweep();
    return handle;
  }

  /** Makes a handle that is never released, for functions that the package itself uses. */
  static Handle forEver(long address) {
    return new Handle(null, address, null);
  }

  /** Releases what was collected, and starts the thread that does so while the program makes no objects. */
  private static void sweep() {
    for (int i = 0; i < 4 && QUEUE.poll() instanceof Handle collected; i++) {
      collected.close();
    }
    if (!isActive) {
      isActive = true;
      if (HAS_THREAD.compareAndSet(false, true)) {
        startThread();
      }
    }
  }

  private static void startThread() {
    try {
      Thread thread = new Thread(null, Handle::collect, "anyfn-handles", 0, false);
      thread.setDaemon(true);
      thread.setContextClassLoader(null);
      thread.start();
    } catch (OutOfMemoryError error) {
      // Objects are then released as others are made.
      HAS_THREAD.set(false);
    }
  }

  private static void collect() {
    while (true) {
      isActive = false;
      try {
        if (QUEUE.remove(IDLE) instanceof Handle collected) {
          collected.close();
        } else if (!IS_PERMANENT && !isActive && Native.live() == 0) {
          HAS_THREAD.set(false);
          if (!isActive || !HAS_THREAD.compareAndSet(false, true)) {
            return;
          }
        }
      } catch (InterruptedException ignored) {
        // Nobody has a reason to interrupt this thread.
      } catch (Throwable failure) {
        Thread.yield();
      }
    }
  }

  /** Returns the address of the native object, and keeps it alive until {@link #leave} is called. */
  long enter() {
    int now = state;
    while (true) {
      if ((now & CLOSED) != 0) {
        throw new IllegalStateException("this native object was closed");
      }
      int before = (int) STATE.compareAndExchange(this, now, now + 1);
      if (before == now) {
        return address;
      }
      now = before;
    }
  }

  /** Ends a use of the native object. */
  void leave() {
    if ((int) STATE.getAndAdd(this, -1) == CLOSED + 1) {
      release();
    }
  }

  /** Returns a new reference of the native object. */
  long retained() {
    long object = enter();
    try {
      Native.retain(object);
    } finally {
      leave();
    }
    return object;
  }

  boolean isClosed() {
    return (state & CLOSED) != 0;
  }

  /** Returns the address of the native object, as its identity. */
  long identity() {
    return address;
  }

  /** Releases the native object, as soon as nobody uses it. */
  void close() {
    int before = (int) STATE.getAndBitwiseOr(this, CLOSED);
    if (before == 0) {
      release();
    }
  }

  private void release() {
    synchronized (list) {
      next.previous = previous;
      previous.next = next;
    }
    clear();
    Native.release(address);
  }
}
