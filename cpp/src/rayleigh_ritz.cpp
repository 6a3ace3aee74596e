#include "rayleigh_ritz.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "dpgep/norm.hpp"

namespace dpgep {
namespace {

constexpr double least_length = 1e-300;
constexpr double least_relative_length = 1e-12;
constexpr double least_relative_pivot = 1e-6;

// Quadratic convergence: ten would do, and the limit is for what is not a number.
constexpr int most_sweeps = 60;

Block symmetrized(const Block& M) {
  return 0.5 * (M + M.transpose());
}

// A symmetric matrix is the sum of values[k] times the square of row k, which are orthonormal.
struct Spectrum {
  Vector<double> values;  // descending
  Block vectors;
};

// (x, y) <- (c x - s y, s x + c y), entry by entry.
void rotate(double c, double s, double* x, double* y, Index n) {
  for (Index i = 0; i < n; ++i) {
    const double before = x[i];
    x[i] = c * before - s * y[i];
    y[i] = s * before + c * y[i];
  }
}

// The rotation of coordinates p and q that makes S(p, q) zero, by at most 45 degrees.
void annihilate(Block& S, Index p, Index q, Block& vectors) {
  const Index K = S.rows();
  const double theta = 0.5 * (S(q, q) - S(p, p)) / S(p, q);
  const double t = std::copysign(1.0, theta) / (std::abs(theta) + std::sqrt(1.0 + theta * theta));
  const double c = 1.0 / std::sqrt(1.0 + t * t);
  const double s = t * c;
  const double of_p = S(p, p) - t * S(p, q);
  const double of_q = S(q, q) + t * S(p, q);
  rotate(c, s, S.data() + p * K, S.data() + q * K, K);
  rotate(c, s, vectors.data() + p * K, vectors.data() + q * K, K);
  S(p, p) = of_p;
  S(q, q) = of_q;
  S(p, q) = S(q, p) = 0.0;
  for (Index k = 0; k < K; ++k) {
    S(k, p) = S(p, k);
    S(k, q) = S(q, k);
  }
}

// Cyclic Jacobi: short and exact for few vectors, with the same bits on every processor, and next
// to nothing to do where the flow has made S nearly diagonal. Eigen's solver would be most of the
// build, and its products have other bits where the processor multiplies and adds in one step.
Spectrum spectrum(Block S) {
  const Index K = S.rows();
  Block vectors = Block::Identity(K, K);
  const FactoredNorm size = norm(S.data(), S.size());
  const double negligible =
      std::numeric_limits<double>::epsilon() * size.scale * size.relative / static_cast<double>(K);
  bool is_diagonal = false;
  for (int sweep = 0; sweep < most_sweeps && !is_diagonal; ++sweep) {
    is_diagonal = true;
    for (Index p = 0; p < K; ++p) {
      for (Index q = p + 1; q < K; ++q) {
        if (!(std::abs(S(p, q)) > negligible)) continue;
        annihilate(S, p, q, vectors);
        is_diagonal = false;
      }
    }
  }
  std::vector<Index> order(static_cast<std::size_t>(K));
  std::iota(order.begin(), order.end(), Index{0});
  std::stable_sort(order.begin(), order.end(), [&](Index i, Index j) { return S(i, i) > S(j, j); });
  Spectrum sorted{Vector<double>(K), Block(K, K)};
  for (Index k = 0; k < K; ++k) {
    const Index from = order[static_cast<std::size_t>(k)];
    sorted.values[k] = S(from, from);
    sorted.vectors.row(k) = vectors.row(from);
  }
  return sorted;
}

void make_largest_entries_positive(Block& C) {
  for (Index k = 0; k < C.rows(); ++k) {
    double* const c = C.data() + k * C.cols();
    const double* const largest = std::max_element(
        c, c + C.cols(), [](double x, double y) { return std::abs(x) < std::abs(y); });
    if (*largest < 0.0) C.row(k) = -C.row(k);
  }
}

// The inverse of the Cholesky factor of G, by elimination: near I where G is, as in a flow, while
// eigenvectors of such a G may be any. Empty where noise leaves G close to singular, or indefinite.
Block inverse_factor(Block G) {
  const Index K = G.rows();
  const double least = std::max(least_relative_pivot * G.diagonal().maxCoeff(), least_length);
  Block inverse = Block::Identity(K, K);
  for (Index p = 0; p < K; ++p) {
    const double pivot = G(p, p);
    if (!(pivot > least)) return {};
    for (Index k = p + 1; k < K; ++k) {
      const double share = G(k, p) / pivot;
      G.row(k) -= share * G.row(p);
      inverse.row(k) -= share * inverse.row(p);
    }
    inverse.row(p) /= std::sqrt(pivot);
  }
  return inverse;
}

// Rows c with c G c^T = I, of the eigenvectors of G; those too short in G count as longer.
Block inverse_root(const Block& G) {
  Spectrum axes = spectrum(G);
  const double longest = std::max(std::abs(axes.values[0]), std::abs(axes.values[G.rows() - 1]));
  const double least = std::max(least_relative_length * longest, least_length);
  for (Index k = 0; k < G.rows(); ++k) {
    axes.vectors.row(k) /= std::sqrt(std::max(axes.values[k], least));
  }
  return axes.vectors;
}

// R c = rho G c for the rows c of vectors.
Spectrum solve(const Block& R, const Block& G) {
  Block whitening = inverse_factor(G);
  if (whitening.size() == 0) whitening = inverse_root(G);
  const Block whitened =
      inner_products(view(combinations(view(whitening), view(R))), view(whitening));
  Spectrum ritz = spectrum(symmetrized(whitened));
  ritz.vectors = combinations(view(ritz.vectors), view(whitening));
  make_largest_entries_positive(ritz.vectors);
  return ritz;
}

}  // namespace

Vector<double> to_ritz_vectors(Block& V, Block& AV, Block& BV) {
  const Block R = symmetrized(inner_products(view(V), view(AV)));
  const Block G = symmetrized(inner_products(view(V), view(BV)));
  if (V.rows() == 1) {
    return Vector<double>::Constant(1, R(0, 0) / std::max(std::abs(G(0, 0)), least_length));
  }
  const Vector<double> none =
      Vector<double>::Constant(V.rows(), std::numeric_limits<double>::quiet_NaN());
  if (!R.allFinite() || !G.allFinite()) return none;
  const Spectrum ritz = solve(R, G);
  if (!ritz.vectors.allFinite()) return none;
  V = combinations(view(ritz.vectors), view(V));
  AV = combinations(view(ritz.vectors), view(AV));
  BV = combinations(view(ritz.vectors), view(BV));
  return ritz.values;
}

}  // namespace dpgep
