#include <chrono>

#include "arrays.hpp"
#include "dpgep/rayleigh_flow.hpp"
#include "held_oracle.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

// Asks Python for signals, but seldom: another thread may hold the GIL for milliseconds.
class SignalCheck {
 public:
  void operator()() {
    const auto now = Clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(50);
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point next_ = Clock::now();
};

py::tuple flow(HeldOracle& oracle, const py::array& V0, Index n_iterations, double step_size,
               double shift, double ridge, Index sparsity, bool separate_supports,
               double tolerance) {
  const auto start = const_rows<double>(V0, "V0");
  const FlowSettings settings{n_iterations, step_size,         shift,    ridge,
                              sparsity,     separate_supports, tolerance};
  Flow result = [&] {
    // Safe: only raw memory is touched, which the oracle and the caller keep alive.
    const py::gil_scoped_release no_gil;
    return rayleigh_flow<PairOracle>(oracle, start, settings, SignalCheck());
  }();
  const Index n_done = result.quotients.rows();
  return py::make_tuple(as_array(std::move(result.vectors)), as_array(std::move(result.quotients)),
                        n_done, result.converged);
}

}  // namespace

void register_rayleigh_flow(py::module_& module) {
  module.def("rayleigh_flow", &flow, py::arg("oracle"), py::arg("V0").noconvert(),
             py::arg("n_iterations").noconvert(), py::arg("step_size"), py::kw_only(),
             py::arg("shift") = 0.0, py::arg("ridge") = 0.0, py::arg("sparsity").noconvert() = 0,
             py::arg("separate_supports") = false, py::arg("tolerance") = 0.0, R"(
Ascend v.Av / v.(B + ridge I)v from the rows of V0: (V, quotients, n_done, converged).

An iteration takes unit rows v to

    rho = v.Av / v.Bv,   w = |rho + shift| v + step_size (A v - rho B v),   v <- w / ||w||,

where A v and B v are what the oracle answers, B with the ridge, and a divisor that noise made negative
counts by its magnitude. Several rows are first rotated to B-orthonormal Ritz vectors, rho descending.
With sparsity k > 0 the k entries of largest |w_i| are kept, of several rows the k columns of largest
norm, or of each row its own with separate_supports. Stops, converged, when no v moves by more than
tolerance > 0, up to its sign; stops, not converged, before a w that is zero or not finite.

V0: (K, d) float64, row-contiguous, K <= d; not changed. Returns V (K, d), unit rows; quotients
(n_done, K), those of every iteration done.

Source: Hu et al., Algorithms 1 and 3, with w = |rho| times theirs: so that ascent stays ascent where
rho < 0. Departures: shift, ridge, blocks, tolerance.

Raises ValueError unless n_iterations >= 1, 0 < step_size < inf, shift, ridge and tolerance are finite
and >= 0, 0 <= sparsity <= d, and the rows of V0 are finite and not zero; and as oracle.times.
)");
}
