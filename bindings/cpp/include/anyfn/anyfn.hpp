/*
 * The C++ frontend: functions, values, objects, containers, tensors and modules that all languages share.
 *
 *     #include <anyfn/anyfn.hpp>
 *
 *     double scale(double x, double factor) { return x * factor; }
 *
 *     ANYFN_EXPORT_FUNC(scale, scale, "Returns x * factor.", anyfn::arg("x"), anyfn::arg("factor") = 2.0);
 *
 * | header | content |
 * |---|---|
 * | <anyfn/error.hpp> | errors as exceptions, `ANYFN_THROW`, `ANYFN_CHECK` |
 * | <anyfn/any.hpp> | values of any type, strings, bytes |
 * | <anyfn/objects.hpp> | counted objects and references to them |
 * | <anyfn/function.hpp> | `PackedFunc`, `TypedPackedFunc` |
 * | <anyfn/registry.hpp> | global functions |
 * | <anyfn/export.hpp> | functions that a library exports |
 * | <anyfn/container.hpp> | `Array`, `List`, `Map`, `Dict`, `Shape` |
 * | <anyfn/std.hpp> | containers of the standard library as arguments and results; not included here |
 * | <anyfn/tensor.hpp> | tensors |
 * | <anyfn/module.hpp> | modules |
 * | <anyfn/reflection.hpp> | fields and methods of object types |
 * | <anyfn/derived.hpp> | types that derive from types of other languages; not included here |
 * | <anyfn/operations.hpp> | printing, comparison, copies, JSON |
 * | <anyfn/classic.h> | the names of the C++ interface of TVM 0.8; not included here |
 * | <anyfn/result.hpp> | results and status, for programs without exceptions |
 *
 * Everything is in the namespace `anyfn`. The headers use the C header <anyfn/c_api.h> only: a program links
 * `libanyfn`, and a plugin links nothing, because the process that loads it has the runtime.
 */
#ifndef ANYFN_ANYFN_HPP_
#define ANYFN_ANYFN_HPP_

#include <anyfn/container.hpp>
#include <anyfn/export.hpp>
#include <anyfn/module.hpp>
#include <anyfn/operations.hpp>
#include <anyfn/reflection.hpp>
#include <anyfn/registry.hpp>
#include <anyfn/tensor.hpp>

#endif  // ANYFN_ANYFN_HPP_
