#include "variant.hpp"

namespace dpgep::bindings {

const char* const variant = DPGEP_VARIANT;
const char* const flags = DPGEP_FLAGS;

}  // namespace dpgep::bindings
