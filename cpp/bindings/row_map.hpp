// Maps of rows as Python gives them.
#pragma once

#include <pybind11/stl.h>

#include <optional>
#include <tuple>

#include "arrays.hpp"
#include "dpgep/row_map.hpp"

namespace dpgep::bindings {

// location, scale, largest and missing, as of map_rows.
using MapArguments =
    std::tuple<std::optional<pybind11::array>, std::optional<pybind11::array>, double, bool>;

inline RowMap row_map(const MapArguments& arguments) {
  const auto& [location, scale, largest, missing] = arguments;
  return {optional_vector<double>(location, "location"), optional_vector<double>(scale, "scale"),
          largest, missing};
}

}  // namespace dpgep::bindings
