// What differs between the modules besides their kernels.
#pragma once

namespace dpgep::bindings {

extern const char* const variant;
extern const char* const flags;  // of the kernels' compiler

}  // namespace dpgep::bindings
