#include "dpgep/truncate.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>

#include "dpgep/norm.hpp"

namespace dpgep {
namespace {

void require_k(Index k, Index d) {
  if (k < 1 || k > d) {
    throw std::invalid_argument("k must satisfy 1 <= k <= d, not k = " + std::to_string(k) +
                                " with d = " + std::to_string(d));
  }
}

// The indices of the k largest, ascending; of equal ones the lower indices. None may be NaN.
std::vector<std::int64_t> indices_of_largest(const Vector<double>& magnitudes, Index k) {
  Vector<double> scratch = magnitudes;
  double* const kth = scratch.data() + (k - 1);
  std::nth_element(scratch.data(), kth, scratch.data() + scratch.size(), std::greater<>());
  const double threshold = *kth;
  Index n_ties = k - (magnitudes.array() > threshold).count();
  std::vector<std::int64_t> kept;
  kept.reserve(static_cast<std::size_t>(k));
  for (Index i = 0; i < magnitudes.size(); ++i) {
    if (magnitudes[i] > threshold || (magnitudes[i] == threshold && n_ties-- > 0)) {
      kept.push_back(i);
    }
  }
  return kept;
}

void require_no_nan(const Vector<double>& magnitudes, const char* name) {
  if (magnitudes.array().isNaN().any()) {
    throw std::invalid_argument(std::string(name) + " must not contain NaN");
  }
}

// Calls set_to_zero(i) for every i in [0, d) that is not among `kept`, which ascends.
template <class SetToZero>
void for_each_dropped(const std::vector<std::int64_t>& kept, Index d, SetToZero set_to_zero) {
  auto next_kept = kept.begin();
  for (Index i = 0; i < d; ++i) {
    if (next_kept != kept.end() && *next_kept == i) {
      ++next_kept;
    } else {
      set_to_zero(i);
    }
  }
}

}  // namespace

template <class Scalar>
std::vector<std::int64_t> truncate_top_k(VectorView<Scalar> v, Index k) {
  require_k(k, v.size());
  const Vector<double> magnitudes = v.template cast<double>().cwiseAbs();
  require_no_nan(magnitudes, "v");
  auto kept = indices_of_largest(magnitudes, k);
  for_each_dropped(kept, v.size(), [&v](Index i) { v[i] = 0; });
  return kept;
}

template <class Scalar>
std::vector<std::int64_t> truncate_rows_top_k(Rows<Scalar> V, Index k) {
  require_k(k, V.rows());
  Vector<double> magnitudes(V.rows());
  for (Index i = 0; i < V.rows(); ++i) {
    magnitudes[i] = norm(V.data() + i * V.outerStride(), V.cols()).value();
  }
  require_no_nan(magnitudes, "V");
  auto kept = indices_of_largest(magnitudes, k);
  for_each_dropped(kept, V.rows(), [&V](Index i) { V.row(i).setZero(); });
  return kept;
}

template std::vector<std::int64_t> truncate_top_k(VectorView<float>, Index);
template std::vector<std::int64_t> truncate_top_k(VectorView<double>, Index);
template std::vector<std::int64_t> truncate_rows_top_k(Rows<float>, Index);
template std::vector<std::int64_t> truncate_rows_top_k(Rows<double>, Index);

}  // namespace dpgep
