#include <pybind11/stl.h>

#include <Eigen/Core>
#include <map>
#include <string>

#include "register.hpp"
#include "variant.hpp"

namespace py = pybind11;

namespace {

std::string compiler() {
#if defined(__clang__)
  return "Clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + "." +
         std::to_string(__clang_patchlevel__);
#elif defined(__GNUC__)
  return "GCC " __VERSION__;
#elif defined(_MSC_VER)
  return "MSVC " + std::to_string(_MSC_VER);
#else
  return "unknown";
#endif
}

std::string eigen_version() {
  return std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
         std::to_string(EIGEN_MINOR_VERSION);
}

std::map<std::string, std::string> build_info() {
  return {{"variant", dpgep::bindings::variant},
          {"compiler", compiler()},
          {"eigen", eigen_version()},
          {"cxx_standard", std::to_string(__cplusplus)},
          {"flags", dpgep::bindings::flags}};
}

}  // namespace

void register_build_info(py::module_& module) {
  module.def("build_info", &build_info,
             "How this module was compiled: variant, compiler, eigen, cxx_standard, flags.");
}
