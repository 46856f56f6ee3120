package org.anyfn;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** The types of the parameters of a function, as its signature tells them. */
record Signature(String name, List<String> types, int optional, boolean isVariadic, String result) {
  /** Reads a signature. Returns null if it has no types. */
  static Signature parse(String text) {
    Map<?, ?> told = (Map<?, ?>) Json.parse(text);
    if (!(told.get("type_schema") instanceof String schema) || !(Json.parse(schema) instanceof Map<?, ?> type)) {
      return null;
    }
    if (!(type.get("named_args") instanceof Map<?, ?> named) || !(named.get("params") instanceof List<?> params)) {
      return null;
    }
    List<String> types = new ArrayList<>();
    for (Object param : params) {
      types.add(typeOf(param));
    }
    int optional = told.get("arg_defaults") instanceof Map<?, ?> defaults ? defaults.size() : 0;
    optional += told.get("arg_optional") instanceof List<?> names ? names.size() : 0;
    Object result = named.get("return") instanceof List<?> results && !results.isEmpty() ? results.get(0) : null;
    String name = told.get("name") instanceof String given ? given : "";
    return new Signature(name, types, optional, Boolean.TRUE.equals(told.get("variadic")), typeOf(result));
  }

  private static String typeOf(Object schema) {
    return schema instanceof Map<?, ?> map && map.get("type") instanceof String type ? type : "Any";
  }
}
