/* Code that launches tasks in the form that compilers generate: through pointer variables that the loader fills. */
#include <anyfn/c_api.h>

#include <stdlib.h>
#include <string.h>

typedef int (*task_t)(int task_id, TVMParallelGroupEnv* env, void* data);

ANYFN_DLL_EXPORT int (*__TVMBackendParallelLaunch)(task_t task, void* data, int num_task) = NULL;
ANYFN_DLL_EXPORT int (*__TVMBackendParallelBarrier)(int task_id, TVMParallelGroupEnv* env) = NULL;
ANYFN_DLL_EXPORT void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = NULL;
ANYFN_DLL_EXPORT int (*__TVMBackendFreeWorkspace)(int, int, void*) = NULL;
ANYFN_DLL_EXPORT int (*__TVMFFIFunctionCall)(TVMFFIObjectHandle, TVMFFIAny*, int32_t, TVMFFIAny*) = NULL;

#define EXPORT(name)                                                                                                  \
  ANYFN_DLL_EXPORT int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);      \
  ANYFN_DLL_EXPORT int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result)

static int call_task(int task_id, TVMParallelGroupEnv* env, void* data) {
  TVMFFIAny args[2], result;
  memset(args, 0, sizeof(args));
  memset(&result, 0, sizeof(result));
  args[0].type_index = args[1].type_index = kTVMFFIInt;
  args[0].v_int64 = task_id;
  args[1].v_int64 = env->num_task;
  /* The functions of the tests return None. */
  return __TVMFFIFunctionCall(data, args, 2, &result);
}

/* call(f, n): f(i, n) in each of n tasks */
EXPORT(call) {
  (void)self, (void)result, (void)num_args;
  return __TVMBackendParallelLaunch(call_task, args[0].v_obj, (int)args[1].v_int64);
}

typedef struct {
  int64_t rounds;
  int64_t counts[64];
  int64_t wrong;
} meeting_t;

/* Between two barriers, each task finds all other tasks in the same round. */
static int meet(int task_id, TVMParallelGroupEnv* env, void* data) {
  meeting_t* meeting = data;
  int64_t round;
  int other;
  for (round = 1; round <= meeting->rounds; ++round) {
    __atomic_store_n(&meeting->counts[task_id], round, __ATOMIC_RELAXED);
    if (__TVMBackendParallelBarrier(task_id, env)) return -1;
    for (other = 0; other < env->num_task; ++other) {
      if (__atomic_load_n(&meeting->counts[other], __ATOMIC_RELAXED) != round) meeting->wrong = 1;
    }
    if (__TVMBackendParallelBarrier(task_id, env)) return -1;
  }
  return 0;
}

/* meet(n, rounds): returns whether n tasks have all waited for each other in each round. */
EXPORT(meet) {
  meeting_t meeting;
  (void)self, (void)num_args;
  memset(&meeting, 0, sizeof(meeting));
  meeting.rounds = args[1].v_int64;
  if (__TVMBackendParallelLaunch(meet, &meeting, (int)args[0].v_int64)) return -1;
  result->type_index = kTVMFFIBool;
  result->v_int64 = !meeting.wrong;
  return 0;
}

static int fill(int task_id, TVMParallelGroupEnv* env, void* data) {
  uint64_t size = *(const uint64_t*)data;
  unsigned char* first = __TVMBackendAllocWorkspace(kDLCPU, 0, size, 2, 32);
  unsigned char* second = __TVMBackendAllocWorkspace(kDLCPU, 0, size, 2, 32);
  uint64_t i;
  int bad = 0;
  (void)env;
  if (!first || !second) return -1;
  if ((uintptr_t)first % 64 || (uintptr_t)second % 64) abort();
  memset(first, task_id, size);
  memset(second, ~task_id, size);
  for (i = 0; i < size; ++i) bad |= first[i] != (unsigned char)task_id || second[i] != (unsigned char)~task_id;
  if (bad) abort();
  /* Workspaces are not freed in the order of allocation. */
  return __TVMBackendFreeWorkspace(kDLCPU, 0, first) | __TVMBackendFreeWorkspace(kDLCPU, 0, second);
}

/* fill(n, size): runs n tasks with workspaces of the given size in bytes */
EXPORT(fill) {
  uint64_t size = (uint64_t)args[1].v_int64;
  (void)self, (void)num_args, (void)result;
  return __TVMBackendParallelLaunch(fill, &size, (int)args[0].v_int64);
}
