// Tests of objects that several threads share and release.
#include <atomic>
#include <thread>
#include <vector>

#include "check.hpp"

using namespace anyfn;

static std::atomic<int> alive{0};

struct Shared : Object {
  ANYFN_DECLARE_OBJECT(Shared, Object, "cpp.threads.Shared");
  Shared() { ++alive; }
  ~Shared() { --alive; }
  int64_t number = 0;
  Array<String> texts;
};

// Each thread has a reference, and the last one that ends destroys the object. What another thread wrote before is visible.
static void the_last_thread_destroys() {
  for (int round = 0; round < 200; ++round) {
    Ref<Shared> object = make_object<Shared>();
    std::vector<std::thread> threads;
    object->number = round;
    object->texts.push_back("a text of more than seven bytes");
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([object, round]() mutable {
        for (int k = 0; k < 100; ++k) {
          const Ref<Shared> copy = object;
          const String text = copy->texts[0];
          Array<String> own = copy->texts;  // a change of a shared Array makes a copy
          own.push_back(text);
          CHECK(copy->number == round && own.size() == 2 && copy->texts.size() == 1);
        }
        object = nullptr;
      });
    }
    object = nullptr;
    for (std::thread& thread : threads) thread.join();
    CHECK(alive == 0);
  }
}

static void one_function_on_all_threads() {
  const TypedPackedFunc<int64_t(int64_t)> twice = [](int64_t x) { return 2 * x; };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&twice] {
      for (int64_t k = 0; k < 1000; ++k) CHECK(twice(k) == 2 * k);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

int main() {
  the_last_thread_destroys();
  one_function_on_all_threads();
  return 0;
}
