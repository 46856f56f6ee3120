/* The library of the example. Every language that loads it calls `scale`. */
#include <anyfn/anyfn.h>

ANYFN_EXPORT(scale) {
  double x, factor;
  if (anyfn_check_num_args(num_args, 2) || anyfn_arg_float(args, num_args, 0, &x)) return -1;
  if (anyfn_arg_float(args, num_args, 1, &factor)) return -1;
  return anyfn_return_float(result, x * factor);
}
