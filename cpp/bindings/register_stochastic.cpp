#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "dpgep/sampled_products.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

// Releasing the GIL is safe in every function here: only raw memory is touched, which the object
// and the caller's references keep alive, and the lock is taken and given back without the GIL.

namespace {

struct HeldProducts : SampledProducts {
  HeldProducts(const AnyRows& rows, Index n_features, ConstVectorView<double> factors,
               const Owners& owners, const SamplingDesign& design, NoiseStream& stream,
               std::vector<py::object> seen)
      : SampledProducts(rows, n_features, factors, owners, design, stream), held(std::move(seen)) {
    held.push_back(py::cast(&stream, py::return_value_policy::reference));
  }

  // Not py::keep_alive for the stream: see held_oracle.hpp.
  std::vector<py::object> held;
};

using Optional = std::optional<py::array>;

Owners owners_of(const Optional& starts, const Optional& order) {
  return {optional_vector<std::int64_t>(starts, "starts"),
          optional_vector<std::int64_t>(order, "order")};
}

std::unique_ptr<HeldProducts> of_dense(const py::array& rows, const py::array& factors,
                                       const SamplingDesign& design, NoiseStream& stream,
                                       const Optional& starts, const Optional& order) {
  return visit_floating(rows, "rows", [&](auto scalar) {
    const auto seen = const_rows<decltype(scalar)>(rows, "rows");
    return std::make_unique<HeldProducts>(
        seen, seen.cols(), const_vector<double>(factors, "factors"), owners_of(starts, order),
        design, stream, std::vector<py::object>{rows, factors, py::cast(starts), py::cast(order)});
  });
}

std::unique_ptr<HeldProducts> of_csr(const py::array& data, const py::array& indices,
                                     const py::array& indptr, Index n_features,
                                     const py::array& factors, const SamplingDesign& design,
                                     NoiseStream& stream, const Optional& starts,
                                     const Optional& order) {
  return visit_floating(data, "data", [&](auto scalar) {
    return visit_index(indptr, "indptr", [&](auto integer) {
      using Rows = Csr<decltype(scalar), decltype(integer)>;
      const Rows seen{const_vector<decltype(scalar)>(data, "data"),
                      const_vector<decltype(integer)>(indices, "indices"),
                      const_vector<decltype(integer)>(indptr, "indptr")};
      return std::make_unique<HeldProducts>(
          seen, n_features, const_vector<double>(factors, "factors"), owners_of(starts, order),
          design, stream,
          std::vector<py::object>{data, indices, indptr, factors, py::cast(starts),
                                  py::cast(order)});
    });
  });
}

py::array_t<double> full(HeldProducts& products, const py::array& V) {
  const auto block = const_rows<double>(V, "V");
  Block answer = [&] {
    const py::gil_scoped_release no_gil;
    return products.full(block);
  }();
  return as_array(std::move(answer));
}

py::tuple result_of(Ascent&& ascent) {
  return py::make_tuple(as_array(std::move(ascent.vectors)), as_array(std::move(ascent.quotients)));
}

py::tuple ascend(HeldProducts& products, const py::array& V, const py::array& step_sizes) {
  const auto block = const_rows<double>(V, "V");
  const auto steps = const_vector<double>(step_sizes, "step_sizes");
  Ascent ascent = [&] {
    const py::gil_scoped_release no_gil;
    return products.ascend(block, steps);
  }();
  return result_of(std::move(ascent));
}

py::tuple ascend_reduced(HeldProducts& products, const py::array& V, const py::array& anchor,
                         const py::array& gradient, const py::array& step_sizes) {
  const auto block = const_rows<double>(V, "V");
  const auto from = const_rows<double>(anchor, "anchor");
  const auto known = const_rows<double>(gradient, "gradient");
  const auto steps = const_vector<double>(step_sizes, "step_sizes");
  Ascent ascent = [&] {
    const py::gil_scoped_release no_gil;
    return products.ascend_reduced(block, from, known, steps);
  }();
  return result_of(std::move(ascent));
}

py::array_t<std::int64_t> poisson_sample(Index n, double rate, NoiseStream& stream) {
  std::vector<Index> members;
  {
    const py::gil_scoped_release no_gil;
    PoissonSampler(n, rate).draw(stream, members);
  }
  py::array_t<std::int64_t> sample(static_cast<py::ssize_t>(members.size()));
  std::copy(members.begin(), members.end(), sample.mutable_data());
  return sample;
}

}  // namespace

void register_stochastic(py::module_& module) {
  module.def("poisson_sample", &poisson_sample, py::arg("n").noconvert(), py::arg("rate"),
             py::arg("stream"), R"(
A new sample of 0, ..., n - 1, ascending int64, each a member with probability rate.

A member takes one little-endian 64-bit word w of the stream, the end one more: with u = (w + 1) 2**-64,
floor(log(u) / log(1 - rate)) of the n are passed over before the next. O(members).

Raises ValueError unless n >= 0 and 0 < rate <= 1.
)");
  py::class_<HeldProducts>(module, "SampledProducts", py::module_local(), py::is_final(), R"(
Products with the second moment A = (1/n0) sum_i (f_i z_i)(f_i z_i)^T of people, noise included: of all of
them, or of a Poisson sample, S, that is drawn anew for each answer and kept secret:

    full:     V (1/n0 sum_i (f_i z_i)(f_i z_i)^T + Z / n0)
    sampled:  V (1/(q n0) sum_{i in S} (f_i z_i)(f_i z_i)^T + Z / (q n0))

q = rate; n0 = n_people is public and so is what divides, never the size of a sample. Z is symmetric,
of shape "goe", drawn anew for each answer, its deviation that in the sum over people. An answer to no
direction (V = 0) draws nothing.

Sources: Shang et al. 2021, Algorithms 1 and 2; docs/mathematics, sections 2 and 6.
)")
      .def_static(
          "of_dense",
          [](const py::array& rows, const py::array& factors, double n_people, double rate,
             double deviation_full, Index n_full, double deviation_sampled, Index n_sampled,
             bool noisy, NoiseStream& stream, int n_threads, const Optional& starts,
             const Optional& order) {
            const SamplingDesign design{
                n_people, rate,     {deviation_full, n_full}, {deviation_sampled, n_sampled},
                noisy,    n_threads};
            return of_dense(rows, factors, design, stream, starts, order);
          },
          py::arg("rows").noconvert(), py::arg("factors").noconvert(), py::arg("n_people"),
          py::arg("rate"), py::arg("deviation_full"), py::arg("n_full").noconvert(),
          py::arg("deviation_sampled"), py::arg("n_sampled").noconvert(), py::arg("noisy"),
          py::arg("stream"), py::arg("n_threads").noconvert() = 1,
          py::arg("starts").noconvert() = py::none(), py::arg("order").noconvert() = py::none(), R"(
rows: (n, d) float32 or float64, row-contiguous; factors: (n,) float64. Nothing is copied, and nothing may
change while this object is used. n_full and n_sampled answers are paid for. Without noise (noisy=False)
deviations and payments are not looked at. Person i, who is in a sample or not, has the rows
order[starts[i]], ..., order[starts[i + 1] - 1], both int64; without them, row i. f_i^2 is to include the weight of a row.

Raises ValueError for other shapes or strides, starts and order that do not say this, deviations negative or not
finite, and unless 0 < rate <= 1 and n_threads >= 1; TypeError for another dtype.
)")
      .def_static(
          "of_csr",
          [](const py::array& data, const py::array& indices, const py::array& indptr,
             Index n_features, const py::array& factors, double n_people, double rate,
             double deviation_full, Index n_full, double deviation_sampled, Index n_sampled,
             bool noisy, NoiseStream& stream, int n_threads, const Optional& starts,
             const Optional& order) {
            const SamplingDesign design{
                n_people, rate,     {deviation_full, n_full}, {deviation_sampled, n_sampled},
                noisy,    n_threads};
            return of_csr(data, indices, indptr, n_features, factors, design, stream, starts,
                          order);
          },
          py::arg("data").noconvert(), py::arg("indices").noconvert(),
          py::arg("indptr").noconvert(), py::arg("n_features").noconvert(),
          py::arg("factors").noconvert(), py::arg("n_people"), py::arg("rate"),
          py::arg("deviation_full"), py::arg("n_full").noconvert(), py::arg("deviation_sampled"),
          py::arg("n_sampled").noconvert(), py::arg("noisy"), py::arg("stream"),
          py::arg("n_threads").noconvert() = 1, py::arg("starts").noconvert() = py::none(),
          py::arg("order").noconvert() = py::none(),
          "The same for compressed sparse rows, as CsrRows takes them.")
      .def_property_readonly("n_features", &HeldProducts::n_features)
      .def_property_readonly("n_rejected_steps", &HeldProducts::n_rejected_steps,
                             "Steps of all ascents so far that were too large to be taken.")
      .def("full", &full, py::arg("V").noconvert(), R"(
The product of all people with the rows of V, (K, d) float64. Calls from several threads take turns.

Raises RuntimeError beyond the answers that were paid; ValueError for V of other width or not finite.
)")
      .def("ascend", &ascend, py::arg("V").noconvert(), py::arg("step_sizes").noconvert(), R"(
DP-SPCA: for each step size eta, G = the sampled product with V, V <- orth(V + eta G).

V: (K, d) float64, 1 <= K <= d; step_sizes: (T,) float64, at least one. orth is Gram-Schmidt. Takes T
sampled answers. Returns V and the mean of V G^T (K, K) over the steps. A step after which fewer than K
directions, or infinite numbers, would be left is not taken: V stays.

Raises RuntimeError beyond the answers that were paid; ValueError for other shapes, and for step sizes that are negative or not finite.
)")
      .def("ascend_reduced", &ascend_reduced, py::arg("V").noconvert(),
           py::arg("anchor").noconvert(), py::arg("gradient").noconvert(),
           py::arg("step_sizes").noconvert(), R"(
An epoch of DP-VRPCA: for each step size eta, G = gradient + the sampled product with V - anchor,
V <- orth(V + eta G). anchor and gradient: (K, d) float64, public: a block of which `full` was asked and
the answer, or the same combination of several such blocks and of their answers.

Where V = anchor nothing is asked, and no answer is used up. Otherwise as `ascend`.
)");
}
