package org.anyfn;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads JSON: objects become maps, arrays lists, numbers Long, BigInteger or Double. Java has no such reader, and the package no dependencies. */
final class Json {
  private static final int DEPTH_MAX = 200;

  private final String text;
  private int at;
  private int depth;

  private Json(String text) {
    this.text = text;
  }

  static Object parse(String text) {
    Json json = new Json(text);
    Object value = json.value();
    json.space();
    if (json.at != text.length()) {
      throw json.error("the end");
    }
    return value;
  }

  private IllegalArgumentException error(String expected) {
    return new IllegalArgumentException("invalid JSON: expected " + expected + " at offset " + at);
  }

  private void space() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
  }

  private boolean skip(char c) {
    space();
    boolean is = at < text.length() && text.charAt(at) == c;
    if (is) {
      at++;
    }
    return is;
  }

  private void expect(char c) {
    if (!skip(c)) {
      throw error("'" + c + "'");
    }
  }

  private Object value() {
    space();
    if (at == text.length() || ++depth > DEPTH_MAX) {
      throw error("a value");
    }
    char c = text.charAt(at);
    Object value =
        switch (c) {
          case '{' -> object();
          case '[' -> array();
          case '"' -> string();
          case 't' -> word("true", Boolean.TRUE);
          case 'f' -> word("false", Boolean.FALSE);
          case 'n' -> word("null", null);
          default -> number();
        };
    depth--;
    return value;
  }

  private Object word(String word, Object value) {
    if (!text.startsWith(word, at)) {
      throw error(word);
    }
    at += word.length();
    return value;
  }

  private Map<String, Object> object() {
    Map<String, Object> map = new LinkedHashMap<>();
    at++;
    if (skip('}')) {
      return map;
    }
    do {
      space();
      if (at == text.length() || text.charAt(at) != '"') {
        throw error("a name");
      }
      String name = string();
      expect(':');
      map.put(name, value());
    } while (skip(','));
    expect('}');
    return map;
  }

  private List<Object> array() {
    List<Object> list = new ArrayList<>();
    at++;
    if (skip(']')) {
      return list;
    }
    do {
      list.add(value());
    } while (skip(','));
    expect(']');
    return list;
  }

  private String string() {
    StringBuilder string = new StringBuilder();
    at++;
    while (at < text.length()) {
      char c = text.charAt(at++);
      if (c == '"') {
        return string.toString();
      }
      if (c == '\\' && at < text.length()) {
        c = text.charAt(at++);
        int known = "bfnrt".indexOf(c);
        if (c == 'u' && at + 4 <= text.length()) {
          c = (char) Integer.parseInt(text.substring(at, at + 4), 16);
          at += 4;
        } else if (known >= 0) {
          c = "\b\f\n\r\t".charAt(known);
        }
      }
      string.append(c);
    }
    throw error("the end of a string");
  }

  private static Number integer(java.math.BigInteger number) {
    return number.bitLength() < 64 ? (Number) number.longValue() : number;
  }

  private Object number() {
    int from = at;
    while (at < text.length() && "+-.0123456789eE".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
    String number = text.substring(from, at);
    try {
      if (number.chars().allMatch(c -> c == '-' || Character.isDigit(c))) {
        return number.length() < 19 ? (Number) Long.valueOf(number) : integer(new java.math.BigInteger(number));
      }
      return Double.valueOf(number);
    } catch (NumberFormatException error) {
      at = from;
      throw error("a number");
    }
  }
}
