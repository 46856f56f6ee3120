# CMake package of the C and C++ headers and of libanyfn. It is relocatable: all paths are relative to this file.
#
#   find_package(anyfn CONFIG REQUIRED)
#   target_link_libraries(plugin PRIVATE anyfn::headers)   # a plugin: the process that loads it has the runtime
#   target_link_libraries(program PRIVATE anyfn::anyfn)    # a program that starts the runtime itself
#   target_link_libraries(plugin PRIVATE anyfn::classic)   # adds <tvm/runtime/packed_func.h> and the like: the names of TVM 0.8
#
# An installation contains this file as lib/cmake/anyfn/anyfnConfig.cmake, beside include and lib/libanyfn.so. In the
# source tree, the headers are those of bindings/c and bindings/cpp, and the target anyfn::anyfn exists if the build of
# `./x build` or of a release is found.
get_filename_component(anyfn_prefix_ "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(EXISTS "${anyfn_prefix_}/include/anyfn/anyfn.hpp")
  set(anyfn_INCLUDE_DIRS "${anyfn_prefix_}/include")
  set(anyfn_classic_folder_ "${anyfn_prefix_}/include/anyfn/classic")
  set(anyfn_library_folders_ "${anyfn_prefix_}/lib")
else()
  set(anyfn_INCLUDE_DIRS "${anyfn_prefix_}/bindings/cpp/include" "${anyfn_prefix_}/bindings/c/include")
  set(anyfn_classic_folder_ "${anyfn_prefix_}/bindings/cpp/include/anyfn/classic")
  set(anyfn_library_folders_ "${anyfn_prefix_}/target/release" "${anyfn_prefix_}/target/debug")
endif()

if(NOT TARGET anyfn::headers)
  add_library(anyfn::headers INTERFACE IMPORTED)
  set_target_properties(anyfn::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${anyfn_INCLUDE_DIRS}")
endif()

if(NOT TARGET anyfn::classic)
  add_library(anyfn::classic INTERFACE IMPORTED)
  set_target_properties(anyfn::classic PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${anyfn_classic_folder_}"
    INTERFACE_LINK_LIBRARIES anyfn::headers)
endif()

find_library(anyfn_LIBRARY NAMES anyfn PATHS ${anyfn_library_folders_} NO_DEFAULT_PATH)
mark_as_advanced(anyfn_LIBRARY)
if(anyfn_LIBRARY AND NOT TARGET anyfn::anyfn)
  add_library(anyfn::anyfn SHARED IMPORTED)
  set_target_properties(anyfn::anyfn PROPERTIES
    IMPORTED_LOCATION "${anyfn_LIBRARY}"
    IMPORTED_SONAME "libanyfn.so"
    INTERFACE_LINK_LIBRARIES anyfn::headers)
endif()

if(anyfn_FIND_COMPONENTS AND NOT anyfn_LIBRARY)
  set(anyfn_FOUND FALSE)
  set(anyfn_NOT_FOUND_MESSAGE "libanyfn is not in ${anyfn_library_folders_}")
endif()
unset(anyfn_prefix_)
unset(anyfn_library_folders_)
unset(anyfn_classic_folder_)
