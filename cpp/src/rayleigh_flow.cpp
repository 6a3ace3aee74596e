#include "dpgep/rayleigh_flow.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "dpgep/norm.hpp"
#include "dpgep/pair_oracle.hpp"
#include "dpgep/truncate.hpp"
#include "rayleigh_ritz.hpp"

namespace dpgep {
namespace {

void require(bool holds, const char* condition, double value) {
  if (holds) return;
  throw std::invalid_argument(std::string("must satisfy ") + condition + ", not " +
                              std::to_string(value));
}

bool is_non_negative(double x) {
  return x >= 0.0 && std::isfinite(x);
}

void require_settings(const FlowSettings& settings, Index d) {
  require(settings.n_iterations >= 1, "n_iterations >= 1",
          static_cast<double>(settings.n_iterations));
  require(settings.step_size > 0.0 && std::isfinite(settings.step_size), "0 < step_size < inf",
          settings.step_size);
  require(is_non_negative(settings.shift), "0 <= shift < inf", settings.shift);
  require(is_non_negative(settings.ridge), "0 <= ridge < inf", settings.ridge);
  require(settings.sparsity >= 0 && settings.sparsity <= d, "0 <= sparsity <= d",
          static_cast<double>(settings.sparsity));
  require(is_non_negative(settings.tolerance), "0 <= tolerance < inf", settings.tolerance);
}

// False where a row is zero or not finite; the block is then unspecified.
bool normalize_rows(Block& block) {
  for (Index k = 0; k < block.rows(); ++k) {
    const FactoredNorm length = norm(block.data() + k * block.cols(), block.cols());
    if (!std::isfinite(length.relative) || length.relative == 0.0) return false;
    block.row(k) = block.row(k) / length.scale / length.relative;
  }
  return true;
}

Block start(const ConstBlock& V0) {
  if (V0.rows() < 1 || V0.rows() > V0.cols()) {
    throw std::invalid_argument("V0 must have 1 <= K <= d rows, not shape (" +
                                std::to_string(V0.rows()) + ", " + std::to_string(V0.cols()) + ")");
  }
  Block V = V0;
  if (!normalize_rows(V)) throw std::invalid_argument("V0 must have finite rows, none zero");
  return V;
}

void truncate(Block& W, const FlowSettings& settings) {
  if (settings.sparsity == 0) return;
  if (W.rows() == 1 || settings.separate_supports) {
    for (Index k = 0; k < W.rows(); ++k) {
      truncate_top_k<double>({W.data() + k * W.cols(), W.cols()}, settings.sparsity);
    }
    return;
  }
  Block columns = W.transpose();
  truncate_rows_top_k<double>(mutable_view(columns), settings.sparsity);
  W = columns.transpose();
}

// The farthest that a row of V is from that of W or its opposite.
double largest_step(const Block& V, const Block& W) {
  double largest = 0.0;
  for (Index k = 0; k < V.rows(); ++k) {
    const Block v = V.row(k);
    const Block w = W.row(k);
    const double sign = inner_products(view(v), view(w))(0, 0) < 0.0 ? -1.0 : 1.0;
    const Block step = w - sign * v;
    largest = std::max(largest, norm(step.data(), step.size()).value());
  }
  return largest;
}

}  // namespace

template <class Oracle>
Flow rayleigh_flow(Oracle& oracle, const ConstBlock& V0, const FlowSettings& settings,
                   const std::function<void()>& check) {
  require_settings(settings, V0.cols());
  const Index K = V0.rows();
  Flow flow{start(V0), Block(0, K), false};
  std::vector<double> quotients;
  Index n_done = 0;
  while (!flow.converged && n_done < settings.n_iterations) {
    check();
    auto [AV, BV] = oracle.times(view(flow.vectors));
    BV += settings.ridge * flow.vectors;
    Block V = flow.vectors;
    const Vector<double> rho = to_ritz_vectors(V, AV, BV);
    Block W(K, V.cols());
    for (Index k = 0; k < K; ++k) {
      W.row(k) = std::abs(rho[k] + settings.shift) * V.row(k) +
                 settings.step_size * (AV.row(k) - rho[k] * BV.row(k));
    }
    if (!W.allFinite()) break;
    truncate(W, settings);
    if (!normalize_rows(W)) break;
    quotients.insert(quotients.end(), rho.data(), rho.data() + K);
    if (settings.tolerance > 0.0) {
      flow.converged = normalize_rows(V) && largest_step(V, W) <= settings.tolerance;
    }
    flow.vectors = std::move(W);
    ++n_done;
  }
  flow.quotients = Eigen::Map<const Block>(quotients.data(), n_done, K);
  return flow;
}

template Flow rayleigh_flow(PairOracle&, const ConstBlock&, const FlowSettings&,
                            const std::function<void()>&);

}  // namespace dpgep
