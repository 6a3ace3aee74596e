#include <pybind11/pybind11.h>

#include "register.hpp"

namespace {

void register_all(pybind11::module_& module) {
  module.doc() = "Compiled kernels of dpgep (private; reached through dpgep._dispatch).";
  module.attr("__version__") = DPGEP_VERSION;
  register_build_info(module);
  register_table_counts(module);
  register_transcript(module);
  register_noise_stream(module);
  register_clip(module);
  register_truncate(module);
  register_fixed_point(module);
  register_columns(module);
  register_clipped_products(module);
  register_integer_moments(module);
  register_dense_moments(module);
  register_keyed_sums(module);
  register_mirror(module);
  register_crc32(module);
  register_csr_moments(module);
  register_csr_sums(module);
  register_exact_noise(module);
  register_exact_products(module);
  register_night_sums(module);
  register_pair_oracle(module);
  register_people(module);
  register_rayleigh_flow(module);
  register_row_weights(module);
  register_stochastic(module);
}

}  // namespace

// These are the same in all modules, each of which is loaded by its own name.
PYBIND11_MODULE(_core_baseline, module) {
  register_all(module);
}
PYBIND11_MODULE(_core_v3, module) {
  register_all(module);
}
