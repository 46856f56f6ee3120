package org.anyfn;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Values and cases of the conformance corpus in Java. */
final class Corpus {
  private Corpus() {}

  /** Reads a file of the corpus. */
  @SuppressWarnings("unchecked")
  static List<Map<String, Object>> cases(String name) {
    try {
      return (List<Map<String, Object>>) Json.parse(Files.readString(Samples.ROOT.resolve("conformance/cases/" + name + ".json")));
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  static PackedFunc callback(String name) {
    return switch (name) {
      case "echo" -> args -> args[0];
      case "count" -> args -> args.length;
      case "fail" -> args -> {
        throw new AnyfnException.ValueError("callback failed");
      };
      default -> throw new IllegalArgumentException(name);
    };
  }

  /** Converts a value of the corpus to a Java value. The scope contains the named values of the case. */
  static Object make(Object value, Map<String, Object> scope) {
    if (value == null || value instanceof Boolean) {
      return value;
    }
    Map.Entry<?, ?> entry = ((Map<?, ?>) value).entrySet().iterator().next();
    Object body = entry.getValue();
    List<?> list = body instanceof List<?> elements ? elements : List.of();
    switch ((String) entry.getKey()) {
      case "int":
        return body;
      case "bigint":
        return new BigInteger((String) body);
      case "float":
        return number(body);
      case "str":
        return body;
      case "bytes":
        return HexFormat.of().parseHex((String) body);
      case "dtype":
        return DType.of((String) body);
      case "device":
        return new Device(((Long) list.get(0)).intValue(), ((Long) list.get(1)).intValue());
      case "opaque":
        return new OpaquePointer((Long) body);
      case "global":
        return Function.get((String) body);
      case "callback":
        return callback((String) body);
      case "let":
        return scope.get((String) body);
      case "call":
        return Function.get((String) list.get(0)).invoke(list.stream().skip(1).map(item -> make(item, scope)).toArray());
      case "field":
        return ((ObjectRef) make(list.get(0), scope)).field((String) list.get(1));
      case "set":
        ((ObjectRef) make(list.get(0), scope)).setField((String) list.get(1), make(list.get(2), scope));
        return null;
      case "attribute":
        return ObjectType.of((String) list.get(0)).attribute((String) list.get(1));
      case "array":
        List<Object> made = new ArrayList<>();
        list.forEach(item -> made.add(make(item, scope)));
        return made;
      case "map":
        Map<Object, Object> map = new LinkedHashMap<>();
        list.forEach(pair -> map.put(make(((List<?>) pair).get(0), scope), make(((List<?>) pair).get(1), scope)));
        return map;
      case "shape":
        return Shape.of(longs(list));
      case "tensor":
        return tensor((Map<?, ?>) body);
      default:
        throw new IllegalArgumentException("unknown value " + value);
    }
  }

  private static long[] longs(List<?> list) {
    return list.stream().mapToLong(item -> (Long) item).toArray();
  }

  private static double number(Object body) {
    return switch (body.toString()) {
      case "nan" -> Double.NaN;
      case "inf" -> Double.POSITIVE_INFINITY;
      case "-inf" -> Double.NEGATIVE_INFINITY;
      default -> Double.parseDouble(body.toString());
    };
  }

  private static void flatten(Object data, List<Object> into) {
    if (data instanceof List<?> list) {
      list.forEach(item -> flatten(item, into));
    } else {
      into.add(data);
    }
  }

  private static Tensor tensor(Map<?, ?> body) {
    DType dtype = DType.of((String) body.get("dtype"));
    List<Object> data = new ArrayList<>();
    flatten(body.get("data"), data);
    int width = dtype.bits() / 8;
    ByteBuffer bytes = ByteBuffer.allocate(data.size() * width).order(ByteOrder.nativeOrder());
    for (Object element : data) {
      if (dtype.code() == 2) {
        double value = number(element);
        switch (width) {
          case 2 -> bytes.putShort((short) halfBits(value));
          case 4 -> bytes.putFloat((float) value);
          default -> bytes.putDouble(value);
        }
      } else {
        long value = element instanceof Boolean flag ? (flag ? 1 : 0) : ((Number) element).longValue();
        switch (width) {
          case 1 -> bytes.put((byte) value);
          case 2 -> bytes.putShort((short) value);
          case 4 -> bytes.putInt((int) value);
          default -> bytes.putLong(value);
        }
      }
    }
    return Tensor.ofBytes(bytes.array(), dtype, longs((List<?>) body.get("shape")));
  }

  /** Converts a number to the bits of a float16; the numbers of the corpus are exact. */
  private static int halfBits(double value) {
    if (value == 0) {
      return Double.doubleToRawLongBits(value) < 0 ? 0x8000 : 0;
    }
    int exponent = Math.getExponent(value);
    int fraction = (int) ((Math.abs(value) / Math.pow(2, exponent) - 1) * 1024);
    return (value < 0 ? 0x8000 : 0) | (exponent + 15) << 10 | fraction;
  }

  /** Converts a value to lists and strings that can be compared. */
  static Object plain(Object value) {
    if (value instanceof Integer number) {
      return number.longValue();
    }
    if (value instanceof BigInteger number && number.bitLength() < 64) {
      return number.longValue();
    }
    if (value instanceof byte[] bytes) {
      return List.of("bytes", HexFormat.of().formatHex(bytes));
    }
    if (value instanceof Tensor tensor) {
      byte[] bytes = tensor.to(Device.cpu()).contiguous().toBytes();
      return List.of("tensor", tensor.dtype().toString(), Arrays.toString(tensor.shape()), HexFormat.of().formatHex(bytes));
    }
    if (value instanceof Shape shape) {
      return List.of("shape", Arrays.toString(shape.toArray()));
    }
    if (value instanceof List<?> list) {
      List<Object> all = new ArrayList<>(List.of("list"));
      list.forEach(item -> all.add(plain(item)));
      return all;
    }
    if (value instanceof Map<?, ?> map) {
      List<Object> all = new ArrayList<>(List.of("map"));
      map.forEach((key, item) -> all.add(Arrays.asList(plain(key), plain(item))));
      return all;
    }
    return value;
  }

  /** Makes the call that a case describes, and returns its result. */
  static Object run(Map<String, Object> one) {
    Map<String, Object> scope = new HashMap<>();
    if (one.get("let") instanceof List<?> lets) {
      lets.forEach(pair -> scope.put((String) ((List<?>) pair).get(0), make(((List<?>) pair).get(1), scope)));
    }
    Object[] args = ((List<?>) one.get("args")).stream().map(arg -> make(arg, scope)).toArray();
    Function function = Function.get((String) one.get("call"));
    if (!(one.get("kwargs") instanceof Map<?, ?> given)) {
      return function.invoke(args);
    }
    Map<String, Object> named = new LinkedHashMap<>();
    given.forEach((name, value) -> named.put((String) name, make(value, scope)));
    return function.invokeNamed(named, args);
  }
}
