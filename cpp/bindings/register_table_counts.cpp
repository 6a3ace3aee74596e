#include <pybind11/stl.h>

#include <optional>

#include "arrays.hpp"
#include "dpgep/people_runs.hpp"
#include "dpgep/table_counts.hpp"
#include "register.hpp"
#include "row_map.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

// counts, of as many axes as it has, as one vector.
Integers counts_of(py::array& counts) {
  require_dtype<std::int64_t>(counts, "counts");
  require_writeable(counts, "counts");
  require_aligned(counts, "counts");
  if ((counts.flags() & py::array::c_style) == 0) {
    throw py::value_error("counts must be C-contiguous");
  }
  return {static_cast<std::int64_t*>(counts.mutable_data()), counts.size()};
}

// body(rows, counts, weights) without the GIL.
template <class Body>
bool with_rows(const py::array& rows, py::array& counts, const std::optional<py::array>& weights,
               const Body& body) {
  const Integers target = counts_of(counts);
  const auto weight = optional_vector<std::int16_t>(weights, "weights");
  require_disjoint(weight, "weights", target, "counts");
  return visit_floating(rows, "rows", [&](auto scalar) {
    const auto view = const_rows<decltype(scalar)>(rows, "rows");
    require_disjoint(view, "rows", target, "counts");
    // Safe: only raw memory is touched, and the caller's references keep the arrays alive.
    const py::gil_scoped_release no_gil;
    return body(view, target, weight);
  });
}

bool magnitudes(const py::array& rows, const py::array& columns, bool missing, Index first_octave,
                Index n_octaves, py::array& counts, int n_threads,
                const std::optional<py::array>& weights) {
  const auto column = const_vector<std::int64_t>(columns, "columns");
  require_disjoint(column, "columns", counts_of(counts), "counts");
  return with_rows(rows, counts, weights,
                   [&](const auto& view, const Integers& target, const RowWeights& weight) {
                     return count_magnitudes(view, column, missing, first_octave, n_octaves, target,
                                             n_threads, weight);
                   });
}

bool places(const py::array& rows, const py::array& columns, bool missing, const py::array& middle,
            const py::array& half, py::array& counts, int n_threads,
            const std::optional<py::array>& weights) {
  const auto column = const_vector<std::int64_t>(columns, "columns");
  require_disjoint(column, "columns", counts_of(counts), "counts");
  const auto m = const_vector<double>(middle, "middle");
  const auto h = const_vector<double>(half, "half");
  return with_rows(rows, counts, weights,
                   [&](const auto& view, const Integers& target, const RowWeights& weight) {
                     return count_places(view, column, missing, m, h, target, n_threads, weight);
                   });
}

bool place_sums(const py::array& rows, bool missing, const py::array& middle, const py::array& half,
                int bits, py::array& counts, int n_threads,
                const std::optional<py::array>& weights) {
  const auto m = const_vector<double>(middle, "middle");
  const auto h = const_vector<double>(half, "half");
  return with_rows(rows, counts, weights,
                   [&](const auto& view, const Integers& target, const RowWeights& weight) {
                     return sum_places(view, missing, m, h, bits, target, n_threads, weight);
                   });
}

py::array_t<double> runs(const py::array& histograms, const py::array& starts,
                         const py::array& widths, double deviation, double least, double noise,
                         double most) {
  const auto counts = const_rows<double>(histograms, "histograms");
  const auto start = const_vector<std::int64_t>(starts, "starts");
  const auto width = const_vector<std::int64_t>(widths, "widths");
  if (start.size() != counts.rows() || width.size() != counts.rows()) {
    throw py::value_error("starts and widths must have one entry for each histogram");
  }
  py::array_t<double> found({counts.rows(), Index{4}});
  double* out = found.mutable_data();
  for (Index i = 0; i < counts.rows(); ++i) {
    if (start[i] < 0 || width[i] < 0 || width[i] > counts.cols() - start[i]) {
      throw py::value_error("starts and widths must be of bins of the histograms");
    }
    const double* first = counts.data() + i * counts.outerStride() + start[i];
    const PeopleRun run = people_run(first, width[i], deviation, {least, noise, most});
    for (const double each : {static_cast<double>(start[i] + run.first),
                              static_cast<double>(start[i] + run.last), run.people, run.rise}) {
      *out++ = each;
    }
  }
  return found;
}

bool norms(const py::array& rows, const py::array& steps, Index zero, Index first,
           py::array& counts, int n_threads, const std::optional<py::array>& weights,
           const std::optional<MapArguments>& map) {
  const auto step = const_vector<double>(steps, "steps");
  const RowMap how = map ? row_map(*map) : RowMap{};
  return with_rows(rows, counts, weights,
                   [&](const auto& view, const Integers& target, const RowWeights& weight) {
                     return count_norms(view, {step, zero, first}, target, n_threads, weight,
                                        map ? &how : nullptr);
                   });
}

bool norms_csr(const py::array& data, const py::array& indptr, const py::array& steps, Index zero,
               Index first, py::array& counts, int n_threads,
               const std::optional<py::array>& weights) {
  const auto step = const_vector<double>(steps, "steps");
  const Integers target = counts_of(counts);
  const auto weight = optional_vector<std::int16_t>(weights, "weights");
  require_disjoint(weight, "weights", target, "counts");
  return visit_floating(data, "data", [&](auto scalar) {
    return visit_index(indptr, "indptr", [&](auto integer) {
      const auto entries = const_vector<decltype(scalar)>(data, "data");
      const auto ends = const_vector<decltype(integer)>(indptr, "indptr");
      require_disjoint(entries, "data", target, "counts");
      require_disjoint(ends, "indptr", target, "counts");
      // Safe: as above.
      const py::gil_scoped_release no_gil;
      return count_norms_csr(entries, ends, {step, zero, first}, target, n_threads, weight);
    });
  });
}

bool map(const py::array& rows, const std::optional<py::array>& location,
         const std::optional<py::array>& scale, double largest, bool missing, py::array& out,
         int n_threads) {
  const RowMap how = row_map({location, scale, largest, missing});
  const auto target = mutable_rows<double>(out, "out");
  require_disjoint(how.location, "location", target, "out");
  require_disjoint(how.scale, "scale", target, "out");
  return visit_floating(rows, "rows", [&](auto scalar) {
    const auto view = const_rows<decltype(scalar)>(rows, "rows");
    require_same_or_disjoint(view, target);
    const py::gil_scoped_release no_gil;
    return map_rows(view, how, target, n_threads);
  });
}

void mix(py::array& rows, const py::array& linear, int bits, int n_threads) {
  const auto target = mutable_rows<double>(rows, "rows");
  const auto matrix = const_rows<double>(linear, "linear");
  require_disjoint(matrix, "linear", target, "rows");
  const py::gil_scoped_release no_gil;
  mix_rows(target, matrix, bits, n_threads);
}

}  // namespace

void register_table_counts(py::module_& module) {
  module.def("count_magnitudes", &magnitudes, py::arg("rows").noconvert(),
             py::arg("columns").noconvert(), py::arg("missing"), py::arg("first_octave"),
             py::arg("n_octaves"), py::arg("counts").noconvert(),
             py::arg("n_threads").noconvert() = 1, py::arg("weights").noconvert() = py::none(), R"(
Add to counts (n_columns, 2, n_octaves + 1) how many entries of some columns are zero (in the first
bin), or lie in each octave: x = m 2^e with 1/2 <= |m| < 1 in the bin e - first_octave, or the
nearest of 1, ..., n_octaves; positive entries, then negative ones.

rows: (n, d) float32 or float64, row-contiguous; columns: (n_columns,) int64; counts: int64,
contiguous; weights: (n,) int16, how often each row counts, or None: once. False if an entry is infinite or, unless NaN stands for a missing value, which adds
nothing, NaN: counts then mean nothing. The same integers for every n_threads.

Raises ValueError for shapes that do not fit and numbers out of range; TypeError for other dtypes.
)");
  module.def("count_places", &places, py::arg("rows").noconvert(), py::arg("columns").noconvert(),
             py::arg("missing"), py::arg("middle").noconvert(), py::arg("half").noconvert(),
             py::arg("counts").noconvert(), py::arg("n_threads").noconvert() = 1,
             py::arg("weights").noconvert() = py::none(), R"(
Add to counts (n_columns, n_bins) how many entries of some columns lie in each of n_bins equal parts
of their intervals, middle +- half; what lies beyond an end counts as there.

middle, half: (n_columns,) float64, middle finite, half > 0. Otherwise as count_magnitudes.
)");
  module.def("sum_places", &place_sums, py::arg("rows").noconvert(), py::arg("missing"),
             py::arg("middle").noconvert(), py::arg("half").noconvert(),
             py::arg("bits").noconvert(), py::arg("counts").noconvert(),
             py::arg("n_threads").noconvert() = 1, py::arg("weights").noconvert() = py::none(), R"(
Add to counts (3, d) the sums of p = round(2^bits u) and of p^2, where -1 <= u <= 1 is the place of
an entry in its column's interval, middle +- half; and how many entries there are.

middle, half: (d,) float64, middle finite, half > 0; 0 <= bits <= 10. Otherwise as count_magnitudes.
)");
  module.def("count_norms", &norms, py::arg("rows").noconvert(), py::arg("steps").noconvert(),
             py::arg("zero"), py::arg("first"), py::arg("counts").noconvert(),
             py::arg("n_threads").noconvert() = 1, py::arg("weights").noconvert() = py::none(),
             py::arg("map") = py::none(), R"(
Add to counts (n_bins,) how many rows have a norm m 2^e, 1/2 <= m < 1, in the bin K - first, or the
nearest: K = n_steps (e - 1) + (how many of the ascending ``steps``, n_steps - 1, are at most m), or
``zero`` for a row of zeros. The norm is max |x_j| sqrt(sum round(2^36 (x_j / max)^2) / 2^36).

steps: (n_steps - 1,) float64. map: location, scale, largest and missing of map_rows, for norms of mapped
rows, or None: NaN is never missing then. Otherwise as count_magnitudes.
)");
  module.def("count_norms_csr", &norms_csr, py::arg("data").noconvert(),
             py::arg("indptr").noconvert(), py::arg("steps").noconvert(), py::arg("zero"),
             py::arg("first"), py::arg("counts").noconvert(), py::arg("n_threads").noconvert() = 1,
             py::arg("weights").noconvert() = py::none(), R"(
count_norms for the rows data[indptr[i]:indptr[i + 1]], without duplicates.

indptr: int32 or int64. Raises ValueError unless indptr rises from 0 to len(data), and as count_norms.
)");
  module.def("people_runs", &runs, py::arg("histograms").noconvert(), py::arg("starts").noconvert(),
             py::arg("widths").noconvert(), py::arg("deviation"), py::arg("least"),
             py::arg("noise"), py::arg("most"), R"(
(k, 4): first, last, people and rise of each histogram, (k, n_bins), among ``widths`` bins from ``starts`` on: the
neighbouring bins with most people beyond a ``deviation`` of the noise for each, by ``rise``. At either end as many bins
are left outside as hold at most ``noise`` deviations of their noise, between the shares ``least`` and ``most`` of these
people.

histograms: float64, row-contiguous; starts, widths: (k,) int64. Of no bins, last < first.

Raises ValueError for shapes that do not fit and bins that are not there; TypeError for other dtypes.
)");
  module.def("map_rows", &map, py::arg("rows").noconvert(), py::arg("location").noconvert(),
             py::arg("scale").noconvert(), py::arg("largest"), py::arg("missing"),
             py::arg("out").noconvert(), py::arg("n_threads").noconvert() = 1, R"(
out_ij = (x_ij - location_j) / scale_j, no further from zero than ``largest``; 0 for NaN.

rows: (n, d) float32 or float64, row-contiguous; location, scale: (d,) float64, or None; out: (n, d)
float64, row-contiguous, the memory of rows or none of it. False if an entry is infinite or, unless
NaN stands for a ``missing`` value, NaN.

Raises ValueError for shapes that do not fit; TypeError for other dtypes.
)");
  module.def("mix_rows", &mix, py::arg("rows").noconvert(), py::arg("linear").noconvert(),
             py::arg("bits"), py::arg("n_threads").noconvert() = 1, R"(
rows = round(2^bits rows) 2^-bits linear, in place.

rows: (n, d) float64, row-contiguous; linear: (d, d) float64, row-contiguous. The same for any n_threads and order of
additions where entries are so few bits, on a grid, that no sum of products is rounded.

Raises ValueError for shapes that do not fit and bits beyond 1000; TypeError for other dtypes.
)");
}
