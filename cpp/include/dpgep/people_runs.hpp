// Runs of neighbouring bins that hold people, in noisy histograms.
#pragma once

#include "dpgep/typedefs.hpp"

namespace dpgep {

// Bins from `first` to `last`, none if last < first, with `people` before their ends were cut, and
// by how much the sum of counts less the deviation of each rises over them.
struct PeopleRun {
  Index first, last;
  double people, rise;
};

// What is left outside at either end: as few people as `noise` deviations of the noise in the bins
// there, but at least the share `least` of the run's people and at most the share `most`.
struct RunTails {
  double least, noise, most;
};

// The run of n bins with most people beyond a deviation of the noise for each; of equal ones the
// first.
PeopleRun people_run(const double* counts, Index n, double deviation, const RunTails& tails);

}  // namespace dpgep
