// The functions of the matrix of frontends, defined in C++.
#include <anyfn/anyfn.hpp>

ANYFN_REGISTER_GLOBAL("matrix.cpp.echo").set_body_typed([](anyfn::Any x) { return x; });

ANYFN_REGISTER_GLOBAL("matrix.cpp.apply").set_body([](anyfn::Args args, anyfn::RetValue* result) {
  anyfn::PackedFunc function = args[0];
  *result = function.call_packed(args.data() + 1, args.size() - 1);
});

ANYFN_REGISTER_GLOBAL("matrix.cpp.raise_error").set_body_typed([](std::string kind, std::string message) {
  throw anyfn::Error(kind, message);
});
