package org.anyfn;

import java.util.LinkedHashMap;
import java.util.Map;

/** The fields of a type with a field of each kind, and with names that Java does not allow. */
public final class Nodes {
  private Nodes() {}

  public static Map<String, String> fields() {
    Map<String, String> fields = new LinkedHashMap<>();
    fields.put("count", "int");
    fields.put("ratio", "float");
    fields.put("is_set", "bool");
    fields.put("name", "str");
    fields.put("data", "bytes");
    fields.put("items", "ffi.Array");
    fields.put("note", "{\"type\":\"Optional\",\"args\":[{\"type\":\"str\"}]}");
    fields.put("any", "Any");
    fields.put("next", "{\"type\":\"Optional\",\"args\":[{\"type\":\"java.view.Node\"}]}");
    fields.put("class", "int");
    return fields;
  }
}
