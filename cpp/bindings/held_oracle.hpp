// An oracle over data and a noise stream that Python owns.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

#include "dpgep/pair_oracle.hpp"

namespace dpgep::bindings {

struct HeldNoise : Noise {
  pybind11::object owner;  // of the stream, or None
};

// The references keep what the oracle sees. Not py::keep_alive: pybind11 3.1 runs it, too, on a
// call whose arguments were refused, which has no result to tie a life to, and crashes.
struct HeldOracle : PairOracle {
  HeldOracle(const ExactProducts& exact, pybind11::object owner, const HeldNoise& noise,
             PairForm form)
      : PairOracle(exact, noise, std::move(form)), data(std::move(owner)), stream(noise.owner) {}

  pybind11::object data, stream;
};

}  // namespace dpgep::bindings
