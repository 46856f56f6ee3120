/* Runs a task in the given number of tasks: on the threads of the runtime, or here where there are none. */
static int32_t anyfn_parallel_in(int32_t count, anyfn_task task, void* data) {
  anyfn_group here = {0, count > 0 ? count : 1};
  int32_t at;
  if (__TVMBackendParallelLaunch) return __TVMBackendParallelLaunch(task, data, count);
  for (at = 0; at < here.num_task; ++at) {
    const int32_t result = task(at, &here, data);
    if (result) return result;
  }
  return 0;
}
