// What module.cpp registers: one function per concept.
#pragma once

#include <pybind11/pybind11.h>

void register_build_info(pybind11::module_& module);
void register_clip(pybind11::module_& module);
void register_clipped_products(pybind11::module_& module);
void register_columns(pybind11::module_& module);
void register_crc32(pybind11::module_& module);
void register_csr_moments(pybind11::module_& module);
void register_csr_sums(pybind11::module_& module);
void register_dense_moments(pybind11::module_& module);
void register_exact_noise(pybind11::module_& module);
void register_exact_products(pybind11::module_& module);
void register_fixed_point(pybind11::module_& module);
void register_integer_moments(pybind11::module_& module);
void register_keyed_sums(pybind11::module_& module);
void register_mirror(pybind11::module_& module);
void register_night_sums(pybind11::module_& module);
void register_noise_stream(pybind11::module_& module);
void register_pair_oracle(pybind11::module_& module);
void register_people(pybind11::module_& module);
void register_rayleigh_flow(pybind11::module_& module);
void register_row_weights(pybind11::module_& module);
void register_stochastic(pybind11::module_& module);
void register_table_counts(pybind11::module_& module);
void register_transcript(pybind11::module_& module);
void register_truncate(pybind11::module_& module);
