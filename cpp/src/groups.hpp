// The group that each row belongs to, if there are groups.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// No groups: everybody is in the first, if there is one.
inline void require_groups(const ConstVectorView<std::int64_t>& groups, Index n_rows,
                           Index n_groups) {
  if (groups.size() == 0 && n_groups <= 1) return;
  if (groups.size() != n_rows) {
    throw std::invalid_argument("groups must have an entry for each of the " +
                                std::to_string(n_rows) + " rows, not " +
                                std::to_string(groups.size()));
  }
  if (!(groups.array() >= 0).all() || !(groups.array() < n_groups).all()) {
    throw std::invalid_argument("groups must satisfy 0 <= group < n_groups = " +
                                std::to_string(n_groups));
  }
}

inline Index group_of(const ConstVectorView<std::int64_t>& groups, Index i) {
  return groups.size() == 0 ? 0 : groups[i];
}

}  // namespace dpgep
