package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;
import static org.anyfn.Runner.fails;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Conversion of values. */
final class ValuesTest {
  private static final Function ECHO = Samples.get("echo");

  private ValuesTest() {}

  @Test
  static void numbers() {
    equal(ECHO.invoke((byte) -1), -1L);
    equal(ECHO.invoke((short) 300), 300L);
    equal(ECHO.invoke(1.5f), 1.5);
    equal(ECHO.invoke(BigInteger.TEN), 10L);
    for (int bits : new int[] {63, 64, 65, 1000, 100_000}) {
      BigInteger number = BigInteger.ONE.shiftLeft(bits);
      equal(ECHO.invoke(number), number);
      equal(ECHO.invoke(number.negate()), bits == 63 ? (Object) Long.MIN_VALUE : number.negate());
    }
  }

  @Test
  static void strings() {
    for (int length = 0; length < 70; length++) {
      String text = "\u00e9".repeat(length);
      equal(ECHO.invoke(text), text);
    }
    String large = "\ud83e\udd80".repeat(1_000_000);
    equal(ECHO.invoke(large), large);
    equal(ECHO.invoke("a?b"), "a?b");
    IllegalArgumentException error = fails(IllegalArgumentException.class, () -> ECHO.invoke("ab\ud800c"));
    equal(error.getMessage(), "the string has a lone surrogate at index 2, which UTF-8 cannot represent");
    byte[] bytes = new byte[100_000];
    bytes[99_999] = 7;
    check(java.util.Arrays.equals((byte[]) ECHO.invoke((Object) bytes), bytes), "bytes are equal");
  }

  @Test
  static void containers() {
    List<?> list = (List<?>) ECHO.invoke(List.of(1, List.of("a", "b"), Map.of("k", 1.5)));
    equal(list, List.of(1L, List.of("a", "b"), Map.of("k", 1.5)));
    check(list instanceof ArrayRef, "it is an ArrayRef");
    fails(IndexOutOfBoundsException.class, () -> list.get(3));
    fails(UnsupportedOperationException.class, () -> list.remove(0));
    Map<?, ?> map = (Map<?, ?>) ECHO.invoke(Map.of("a", 1, "b", 2));
    equal(map, Map.of("a", 1L, "b", 2L));
    equal(map.get("c"), null);
    List<Object> self = new ArrayList<>();
    self.add(self);
    String message = fails(IllegalArgumentException.class, () -> ECHO.invoke(self)).getMessage();
    check(message.contains("contains itself"), message);
    equal(ECHO.invoke((Object) new Object[] {1, "x"}), List.of(1L, "x"));
  }

  @Test
  static void mutableContainers() {
    ListRef list = ListRef.of("a", "b");
    list.add("c");
    list.add(0, "z");
    equal(list, List.of("z", "a", "b", "c"));
    equal(list.set(1, "y"), "a");
    equal(list.remove(0), "z");
    list.removeIf("b"::equals);
    equal(list, List.of("y", "c"));
    ListRef same = (ListRef) ECHO.invoke(list);
    check(same.isSame(list), "it is the same list");
    same.clear();
    check(list.isEmpty(), "both see changes");
    DictRef dict = DictRef.copyOf(Map.of("x", 1));
    equal(dict.put("y", 2), null);
    equal(dict.put("y", 3), 2L);
    Map<Object, Object> copy = new HashMap<>(dict);
    equal(copy, Map.of("x", 1L, "y", 3L));
    equal(dict.remove("x"), 1L);
    dict.keySet().removeIf("y"::equals);
    check(dict.isEmpty(), "it is empty");
  }

  @Test
  static void wrongClasses() {
    String array = fails(IllegalArgumentException.class, () -> ECHO.invoke((Object) new float[3])).getMessage();
    check(array.contains("Tensor.of(array)"), array);
    String character = fails(IllegalArgumentException.class, () -> ECHO.invoke('c')).getMessage();
    check(character.contains("convert it to a String"), character);
    record Unknown(int x) {}
    String record = fails(IllegalArgumentException.class, () -> ECHO.invoke(new Unknown(1))).getMessage();
    check(record.contains("ObjectType.define"), record);
    // The arguments before the wrong one are released.
    fails(IllegalArgumentException.class, () -> ECHO.invoke(List.of(1), "a string that is not short", new Object()));
    equal(ECHO.invoke(1), 1L);
  }

  @Test
  static void containersAsJavaUsesThem() {
    ListRef list = ListRef.of(1, 2, 1);
    check(list.contains(1) && list.indexOf((short) 2) == 1 && list.lastIndexOf(1) == 2, "an Integer is found");
    check(list.remove((Object) 2) && list.size() == 2, "and removed");
    DictRef dict = DictRef.copyOf(Map.of("x", 1, "y", 2));
    check(dict.containsValue(1) && !dict.containsValue(3), "an Integer is a value");
    check(dict.get('c') == null && !dict.containsKey(new Object()), "what cannot be converted is not a key");
    dict.replaceAll((key, value) -> (Long) value + 10);
    equal(dict, Map.of("x", 11L, "y", 12L));
    for (Map.Entry<Object, Object> entry : dict.entrySet()) {
      entry.setValue(5);
      equal(entry.getValue(), 5L);
    }
    equal(dict, Map.of("x", 5L, "y", 5L));
    fails(UnsupportedOperationException.class, () -> MapRef.copyOf(Map.of(1, 2)).entrySet().iterator().next().setValue(1));
  }

  @Test
  static void tooManyElements() {
    Map<Object, Object> huge = new java.util.AbstractMap<>() {
      @Override
      public int size() {
        return 1 << 30;
      }

      @Override
      public java.util.Set<Map.Entry<Object, Object>> entrySet() {
        throw new AssertionError("the size is checked first");
      }
    };
    check(fails(AnyfnException.ValueError.class, () -> ECHO.invoke(huge)).getMessage().contains("too many"), "the message says why");
    fails(AnyfnException.ValueError.class, () -> DictRef.copyOf(huge));
  }

  @Test
  static void convertedValues() {
    equal(Function.convert(1), 1L);
    equal(Function.convert(List.of((short) 2)), List.of(2L));
    check(Function.convert((PackedFunc) args -> 1) instanceof Function, "a lambda is a function");
    byte[] bytes = {1};
    check(Function.convert(bytes) != bytes, "bytes are copied");
  }

  @Test
  static void equalityOfClosedObjects() {
    for (int i = 0; i < 1000; i++) {
      ObjectRef before = Function.of(args -> 1);
      before.close();
      ObjectRef after = Function.of(args -> 1);
      check(!before.equals(after) && before.equals(before), "a closed object is no other one");
      after.close();
    }
  }
}
