#include <pybind11/stl.h>

#include <cstring>
#include <memory>

#include "arrays.hpp"
#include "dpgep/transcript.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

py::array_t<std::int64_t> integers(const std::vector<std::int64_t>& entries) {
  return py::array_t<std::int64_t>(static_cast<py::ssize_t>(entries.size()), entries.data());
}

py::tuple as_tuple(const Query& query) {
  py::list keys;
  for (const auto& key : query.keys) {
    keys.append(py::bytes(reinterpret_cast<const char*>(key.data()), key.size()));
  }
  return py::make_tuple(query.law, py::make_tuple(query.n_rows, query.n_cols),
                        integers(query.scales), py::cast(query.direction), query.low_bits,
                        integers(query.exact), integers(query.exact_high), integers(query.answer),
                        integers(query.answer_high), keys);
}

}  // namespace

void register_transcript(py::module_& module) {
  py::class_<Transcript, std::shared_ptr<Transcript>>(module, "Transcript", py::module_local(),
                                                      py::is_final(), R"(
What the streams that hold it are asked for, in order: exact values before noise, and answers. Given a script,
the transcript of another run, its streams give that run's answers again.
)")
      .def(py::init([](std::shared_ptr<Transcript> script) {
             return std::make_shared<Transcript>(std::move(script));
           }),
           py::arg("script") = py::none())
      .def("close", &Transcript::close,
           "From here on its streams raise RuntimeError where they are asked for anything.")
      .def_property_readonly("divergence", &Transcript::divergence,
                             "How the run left the script; empty while it follows.")
      .def_property_readonly(
          "n_queries", [](const Transcript& transcript) { return transcript.queries().size(); })
      .def(
          "query",
          [](const Transcript& transcript, std::size_t i) {
            return as_tuple(transcript.queries().at(i));
          },
          py::arg("i").noconvert(), R"(
(law, shape, scales, direction, low_bits, exact, exact_high, answer, answer_high, keys) of query i: transcript.hpp.
)");
}
