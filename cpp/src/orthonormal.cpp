#include "dpgep/orthonormal.hpp"

#include <cmath>
#include <stdexcept>

#include "dpgep/norm.hpp"

namespace dpgep {
namespace {

constexpr double least_remainder = 1e-10;

// u loses its part in the span of Q, whose coefficients (n, 1) are added up.
void project_out(const ConstBlock& Q, Block& u, Block& coefficients) {
  const Block part = inner_products(Q, view(u));
  const Block negative = -part.transpose();
  add_combinations(view(negative), Q, mutable_view(u));
  coefficients += part;
}

}  // namespace

Expansion expand(const ConstBlock& V, const ConstBlock& Q) {
  const Index K = V.rows();
  Expansion expansion{Block::Zero(K, Q.rows()), Block::Zero(K, K), Block(K, V.cols())};
  Index n_new = 0;
  for (Index k = 0; k < K; ++k) {
    const FactoredNorm length = norm(row(V, k), V.cols());
    if (!std::isfinite(length.relative)) throw std::invalid_argument("V must be finite");
    if (length.relative == 0.0) continue;
    Block u = V.row(k) / length.scale / length.relative;
    Block known = Block::Zero(Q.rows(), 1);
    Block added = Block::Zero(n_new, 1);
    for (int pass = 0; pass < 2; ++pass) {
      project_out(Q, u, known);
      project_out(top_rows(expansion.directions, n_new), u, added);
    }
    expansion.known.row(k) = length.value() * known.transpose();
    expansion.added.row(k).head(n_new) = length.value() * added.transpose();
    const double remainder = norm(u.data(), u.size()).value();
    if (!(remainder > least_remainder)) continue;
    expansion.added(k, n_new) = length.value() * remainder;
    expansion.directions.row(n_new++) = u / remainder;
  }
  expansion.added.conservativeResize(K, n_new);
  expansion.directions.conservativeResize(n_new, V.cols());
  return expansion;
}

}  // namespace dpgep
