#include "dpgep/people_runs.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dpgep {
namespace {

// The largest number of first bins, `step` apart, that hold at most what is left outside.
Index n_outside(const double* counts, Index step, Index n, double people, double deviation,
                const RunTails& tails) {
  Index outside = 0;
  double sum = 0.0;
  for (Index k = 0; k < n; ++k) {
    sum += counts[k * step];
    const double noise = tails.noise * deviation * std::sqrt(static_cast<double>(1 + k));
    if (sum <= std::min(std::max(noise, tails.least * people), tails.most * people)) {
      outside = k + 1;
    }
  }
  return outside;
}

}  // namespace

PeopleRun people_run(const double* counts, Index n, double deviation, const RunTails& tails) {
  PeopleRun run{0, -1, 0.0, -std::numeric_limits<double>::infinity()};
  if (n == 0) return run;
  double height = 0.0, lowest = 0.0;
  Index after_lowest = 0;
  for (Index bin = 0; bin < n; ++bin) {
    if (height < lowest) {
      lowest = height;
      after_lowest = bin;
    }
    height += counts[bin] - deviation;
    if (height - lowest > run.rise) run = {after_lowest, bin, 0.0, height - lowest};
  }
  for (Index bin = run.first; bin <= run.last; ++bin) run.people += counts[bin];
  const Index length = run.last + 1 - run.first;
  const Index before = n_outside(counts + run.first, 1, length, run.people, deviation, tails);
  const Index behind =
      n_outside(counts + run.first + length - 1, -1, length, run.people, deviation, tails);
  run.first += before;
  run.last -= behind;
  return run;
}

}  // namespace dpgep
