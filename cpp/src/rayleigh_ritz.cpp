#include "rayleigh_ritz.hpp"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>

namespace dpgep {
namespace {

constexpr double least_length = 1e-300;
constexpr double least_relative_length = 1e-12;

using Small = Eigen::MatrixXd;

Small symmetrized(const Block& M) {
  return 0.5 * (M + M.transpose());
}

// The columns c, of descending quotients; the largest entry of each is positive.
Small solve(const Small& R, const Small& G, Vector<double>& rho) {
  const Eigen::SelfAdjointEigenSolver<Small> axes(G);
  const double floor =
      std::max(least_relative_length * axes.eigenvalues().cwiseAbs().maxCoeff(), least_length);
  const Small whitened = axes.eigenvectors() *
                         axes.eigenvalues().cwiseMax(floor).cwiseSqrt().cwiseInverse().asDiagonal();
  const Eigen::SelfAdjointEigenSolver<Small> ritz(symmetrized(whitened.transpose() * R * whitened));
  rho = ritz.eigenvalues().reverse();
  Small C = whitened * ritz.eigenvectors().rowwise().reverse();
  for (Index k = 0; k < C.cols(); ++k) {
    Index largest = 0;
    C.col(k).cwiseAbs().maxCoeff(&largest);
    if (C(largest, k) < 0.0) C.col(k) = -C.col(k);
  }
  return C;
}

Block rotated(const Block& C, const Block& V) {
  Block result = Block::Zero(C.rows(), V.cols());
  add_combinations(view(C), view(V), mutable_view(result));
  return result;
}

}  // namespace

Vector<double> to_ritz_vectors(Block& V, Block& AV, Block& BV) {
  const Small R = symmetrized(inner_products(view(V), view(AV)));
  const Small G = symmetrized(inner_products(view(V), view(BV)));
  if (V.rows() == 1) {
    return Vector<double>::Constant(1, R(0, 0) / std::max(std::abs(G(0, 0)), least_length));
  }
  const Vector<double> none =
      Vector<double>::Constant(V.rows(), std::numeric_limits<double>::quiet_NaN());
  if (!R.allFinite() || !G.allFinite()) return none;
  Vector<double> rho;
  const Block C = solve(R, G, rho).transpose();
  if (!C.allFinite()) return none;
  V = rotated(C, V);
  AV = rotated(C, AV);
  BV = rotated(C, BV);
  return rho;
}

}  // namespace dpgep
