/* The calls of Calls.java through JNI alone, and functions for those of Ffm.java: what a hand-written library costs. */
#include <jni.h>
#include <string.h>

JNIEXPORT jlong JNICALL Java_Plain_longs0(JNIEnv* env, jclass cls) {
  (void)env, (void)cls;
  return 0;
}

JNIEXPORT jlong JNICALL Java_Plain_longs3(JNIEnv* env, jclass cls, jlong a, jlong b, jlong c) {
  (void)env, (void)cls;
  return a + b + c;
}

/* Converts a string to UTF-8 and back, as a function that uses its text must. */
JNIEXPORT jstring JNICALL Java_Plain_echo(JNIEnv* env, jclass cls, jstring text) {
  (void)cls;
  const char* utf8 = (*env)->GetStringUTFChars(env, text, NULL);
  if (!utf8) return NULL;
  jstring result = (*env)->NewStringUTF(env, utf8);
  (*env)->ReleaseStringUTFChars(env, text, utf8);
  return result;
}

/* Reads the first element of a direct buffer. */
JNIEXPORT jdouble JNICALL Java_Plain_first(JNIEnv* env, jclass cls, jobject buffer) {
  (void)cls;
  return *(float*)(*env)->GetDirectBufferAddress(env, buffer);
}

/* Calls a function of Java that takes and returns a long. */
JNIEXPORT jlong JNICALL Java_Plain_callback(JNIEnv* env, jclass cls, jobject f, jlong x) {
  (void)cls;
  static jmethodID method;
  if (!method) method = (*env)->GetMethodID(env, (*env)->GetObjectClass(env, f), "applyAsLong", "(J)J");
  return (*env)->CallLongMethod(env, f, method, x);
}

JNIEXPORT jlong plain_longs0(void) { return 0; }

JNIEXPORT jlong plain_longs3(jlong a, jlong b, jlong c) { return a + b + c; }

/* Copies a text, as a function that uses it and returns another one must. */
JNIEXPORT void plain_echo(const char* text, char* result) { strcpy(result, text); }

JNIEXPORT jdouble plain_first(const float* buffer) { return *buffer; }

JNIEXPORT jlong plain_callback(jlong (*f)(jlong), jlong x) { return f(x); }
