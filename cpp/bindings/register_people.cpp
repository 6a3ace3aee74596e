#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>

#include "arrays.hpp"
#include "dpgep/people.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

// Strings that are looked at together, so that their memory arrives meanwhile.
constexpr py::ssize_t texts_at_once = 64;

void expect([[maybe_unused]] const void* address) {
#if defined(__GNUC__)
  __builtin_prefetch(address);
#endif
}

// It is here and not among the kernels, since it reads objects of Python.
bool text_words(const py::array& values, std::uint64_t key, std::uint64_t other_key,
                py::array& words) {
  if (values.dtype().kind() != 'O') throw py::type_error("values must have dtype object");
  require_ndim(values, 1, "values");
  require_aligned(values, "values");
  if ((values.flags() & py::array::c_style) == 0) {
    throw py::value_error("values must be contiguous");
  }
  auto target = mutable_rows<std::uint64_t>(words, "words");
  if (target.rows() != values.size() || target.cols() != 2) {
    throw py::value_error("words must have two entries for each");
  }
  PyObject* const* const texts = static_cast<PyObject* const*>(values.data());
  for (py::ssize_t i = 0; i < values.size(); ++i) {
    if (i + texts_at_once < values.size()) expect(texts[i + texts_at_once]);
    PyObject* const text = texts[i];
    if (text == nullptr || !PyUnicode_CheckExact(text)) return false;
    const void* bytes = PyUnicode_DATA(text);
    py::ssize_t size = PyUnicode_GET_LENGTH(text);
    py::object encoded;
    if (!PyUnicode_IS_ASCII(text)) {
      encoded = py::reinterpret_steal<py::object>(
          PyUnicode_AsEncodedString(text, "utf-8", "surrogatepass"));
      if (!encoded) throw py::error_already_set();
      bytes = PyBytes_AS_STRING(encoded.ptr());
      size = PyBytes_GET_SIZE(encoded.ptr());
    }
    const Identity found = keyed_identity(static_cast<const std::uint8_t*>(bytes),
                                          static_cast<std::size_t>(size), {key, other_key});
    target(i, 0) = found.first;
    target(i, 1) = found.second;
  }
  return true;
}

void utf8_words(const py::array& ends, const py::array& bytes, std::uint64_t key,
                std::uint64_t other_key, py::array& words) {
  const auto places = const_vector<std::int64_t>(ends, "ends");
  const auto text = const_vector<std::uint8_t>(bytes, "bytes");
  auto target = mutable_rows<std::uint64_t>(words, "words");
  require_disjoint(places, "ends", target, "words");
  require_disjoint(text, "bytes", target, "words");
  const py::gil_scoped_release no_gil;
  keyed_identities(places, text, {key, other_key}, target);
}

void number(Numbering& numbering, const py::array& words, py::array& numbers, bool is_open) {
  const auto source = const_rows<std::uint64_t>(words, "words");
  auto target = mutable_vector<std::int64_t>(numbers, "numbers");
  require_disjoint(source, "words", target, "numbers");
  const py::gil_scoped_release no_gil;
  numbering.number(source, target, is_open);
}

// Calls use(persons, keys, units) without the GIL, which is safe: only raw memory is touched, which
// the caller's references keep alive, and a lock is taken and given back without the GIL.
template <class Use>
void of_rows(const py::array& persons, const py::array& keys, const std::optional<py::array>& units,
             const Use& use) {
  const auto person = const_vector<std::int64_t>(persons, "persons");
  const auto key = const_vector<std::uint64_t>(keys, "keys");
  const auto unit = optional_vector<std::int64_t>(units, "units");
  const py::gil_scoped_release no_gil;
  use(person, key, unit);
}

void count(Shares& counted, const py::array& persons, const py::array& keys,
           const std::optional<py::array>& units) {
  of_rows(persons, keys, units, [&](const auto&... rows) { counted.count(rows...); });
}

template <class Share>
void share(Shares& counted, const py::array& persons, const py::array& keys,
           const std::optional<py::array>& units, py::array& are_open, py::array& shares) {
  const auto open = mutable_vector<std::uint8_t>(are_open, "are_open");
  const auto target = mutable_vector<Share>(shares, "shares");
  require_disjoint(open, "are_open", target, "shares");
  of_rows(persons, keys, units, [&](const auto&... rows) {
    for (const auto& written : {extent(open), extent(target)}) {
      if (!(are_disjoint(extent(rows), written) && ...)) {
        throw std::invalid_argument("are_open and shares must not overlap rows");
      }
    }
    counted.share(rows..., open, target);
  });
}

void share_any(Shares& counted, const py::array& persons, const py::array& keys,
               const std::optional<py::array>& units, py::array& are_open, py::array& shares) {
  const bool is_short = shares.dtype().itemsize() == sizeof(std::int16_t);
  (is_short ? share<std::int16_t> : share<std::int64_t>)(counted, persons, keys, units, are_open,
                                                         shares);
}

}  // namespace

void register_people(py::module_& module) {
  module.def("text_words", &text_words, py::arg("values").noconvert(), py::arg("key"),
             py::arg("other_key"), py::arg("words").noconvert(), R"(
SipHash-2-4 of 128 bits of each string in UTF-8 (surrogates are characters like others), with the key (key, other_key).

values: (n,) object, contiguous and aligned; words: (n, 2) uint64. False, and words unspecified, if a value is no string of
type str. Raises ValueError and TypeError for other shapes and dtypes.
)");
  module.def("utf8_words", &utf8_words, py::arg("ends").noconvert(), py::arg("bytes").noconvert(),
             py::arg("key"), py::arg("other_key"), py::arg("words").noconvert(), R"(
The same of texts in UTF-8, one after the other, as Arrow holds them.

ends: (n + 1,) int64, of which text i is bytes[ends[i]:ends[i + 1]]; bytes: uint8; words: (n, 2) uint64. Raises ValueError
and TypeError for other shapes and dtypes, and for ends that do not ascend within the bytes.
)");
  py::class_<Numbering>(module, "Numbering", py::module_local(), R"(
Numbers people, of whom each is two words of 64 bits, in the order in which they come. Calls take turns.

Their places in a table follow from the seed, which whoever chooses ids should not know.
)")
      .def(py::init<std::uint64_t>(), py::arg("seed"))
      .def_property_readonly("size", &Numbering::size)
      .def("number", &number, py::arg("words").noconvert(), py::arg("numbers").noconvert(),
           py::arg("is_open"), R"(
The number of each; of who has not come before, the next one, or -1 where the numbering is not open.

words: (n, 2) uint64, row-contiguous; numbers: (n,) int64. Raises ValueError and TypeError for other shapes and dtypes.
)");
  py::class_<Shares>(module, "Shares", py::module_local(), R"(
What rows have of their persons, of each of whom there are 2**bits. Calls take turns.

A row of u units of 2**-40 of its person (all where there are none), one of m, has x = 2**bits u/max(m, most_alike) of
these, and all together T, their sum rounded: each floor(x), one more if m > 2**(bits - 6) and its key is below t, and all
that is left of T if it has the least key among those that have units, of those with equal first 40 bits the first.
F = T - sum floor(x), s = ceil(4 sqrt(F)), t = 2**32 floor(2**32 (x - floor(x)) (F - s)/F), or 0 where s > F. If more than
F keys are below t, they have nothing more.
)")
      .def(py::init<Index, int, bool>(), py::arg("most_alike") = 1, py::arg("bits") = 12,
           py::arg("weighted") = false)
      .def("count", &count, py::arg("persons").noconvert(), py::arg("keys").noconvert(),
           py::arg("units").noconvert() = py::none(), R"(
Counts some of the rows of a pass over all.

persons: (n,) int64, numbers below eight times the rows; keys: (n,) uint64; units: (n,) int64, or None unless weighted.
Raises ValueError for lengths, numbers and units that do not fit.
)")
      .def("end_pass", &Shares::end_pass, "Whether all rows are to be counted in another pass.")
      .def("share", &share_any, py::arg("persons").noconvert(), py::arg("keys").noconvert(),
           py::arg("units").noconvert(), py::arg("are_open").noconvert(),
           py::arg("shares").noconvert(), R"(
The shares of some of the rows of a pass over all, which begins with are_open = 255: what is left is to be had.

persons, keys, units: as above; are_open: uint8, a bit for each person, the lowest first; shares: (n,) int16 or int64. Raises ValueError for
lengths and people that do not fit.
)");
}
