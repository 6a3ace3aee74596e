#include "dpgep/poisson_sample.hpp"

#include <cmath>
#include <sstream>
#include <stdexcept>

namespace dpgep {
namespace {

double uniform(NoiseStream::Lease& stream) {
  std::uint8_t bytes[8];
  stream.read(bytes, sizeof bytes);
  std::uint64_t word = 0;
  for (int i = 7; i >= 0; --i) word = word << 8 | bytes[i];
  return (static_cast<double>(word) + 1.0) * 0x1p-64;
}

}  // namespace

PoissonSampler::PoissonSampler(Index n, double rate)
    : n_(n), rate_(rate), log_miss_(std::log1p(-rate)) {
  if (n < 0) throw std::invalid_argument("n must satisfy n >= 0, not " + std::to_string(n));
  if (!(rate > 0.0 && rate <= 1.0)) {
    std::ostringstream message;
    message << "rate must satisfy 0 < rate <= 1, not " << rate;
    throw std::invalid_argument(message.str());
  }
}

void PoissonSampler::draw(NoiseStream& stream, std::vector<Index>& members) const {
  const auto pass_over = [&] {
    members.clear();
    NoiseStream::Lease lease(stream);
    for (Index next = 0;; ++next) {
      const double passed_over = std::floor(std::log(uniform(lease)) / log_miss_);
      if (!(passed_over < static_cast<double>(n_ - next))) return;
      next += static_cast<Index>(passed_over);
      members.push_back(next);
    }
  };
  if (stream.transcript() == nullptr) {
    pass_over();
  } else {
    stream.transcript()->sample(n_, rate_, members, pass_over);
  }
}

}  // namespace dpgep
