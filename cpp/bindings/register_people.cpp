#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>

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
    // Equal strings have equal bytes: each is held by the widest of its characters.
    const auto kind = static_cast<std::size_t>(PyUnicode_KIND(text));
    const auto size = kind * static_cast<std::size_t>(PyUnicode_GET_LENGTH(text));
    const Identity found = keyed_identity(static_cast<const std::uint8_t*>(PyUnicode_DATA(text)),
                                          size, {key ^ kind, other_key});
    target(i, 0) = found.first;
    target(i, 1) = found.second;
  }
  return true;
}

void number(Numbering& numbering, const py::array& words, py::array& numbers, bool is_open) {
  const auto source = const_rows<std::uint64_t>(words, "words");
  auto target = mutable_vector<std::int64_t>(numbers, "numbers");
  require_disjoint(source, "words", target, "numbers");
  const py::gil_scoped_release no_gil;
  numbering.number(source, target, is_open);
}

// Calls use(persons, keys) without the GIL, which is safe: only raw memory is touched, which the
// caller's references keep alive, and a lock is taken and given back without the GIL.
template <class Use>
void of_rows(const py::array& persons, const py::array& keys, const Use& use) {
  const auto person = const_vector<std::int64_t>(persons, "persons");
  const auto key = const_vector<std::uint64_t>(keys, "keys");
  const py::gil_scoped_release no_gil;
  use(person, key);
}

void count(Shares& shares, const py::array& persons, const py::array& keys, Index n_people) {
  of_rows(persons, keys,
          [&](const auto& person, const auto& key) { shares.count(person, key, n_people); });
}

void count_again(Shares& shares, const py::array& persons, const py::array& keys) {
  of_rows(persons, keys,
          [&](const auto& person, const auto& key) { shares.count_again(person, key); });
}

void share(Shares& shares, const py::array& persons, const py::array& keys, py::array& are_open,
           py::array& out) {
  const auto open = mutable_vector<bool>(are_open, "are_open");
  const auto target = mutable_vector<std::int16_t>(out, "shares");
  require_disjoint(open, "are_open", target, "shares");
  const auto person_rows = const_vector<std::int64_t>(persons, "persons");
  const auto key_rows = const_vector<std::uint64_t>(keys, "keys");
  for (const auto& [extent_of, name] :
       {std::pair{extent(open), "are_open"}, std::pair{extent(target), "shares"}}) {
    if (!are_disjoint(extent(person_rows), extent_of) ||
        !are_disjoint(extent(key_rows), extent_of)) {
      throw py::value_error(std::string(name) + " must not overlap persons or keys");
    }
  }
  of_rows(persons, keys,
          [&](const auto& person, const auto& key) { shares.share(person, key, open, target); });
}

}  // namespace

void register_people(py::module_& module) {
  module.def("text_words", &text_words, py::arg("values").noconvert(), py::arg("key"),
             py::arg("other_key"), py::arg("words").noconvert(), R"(
SipHash-2-4 of 128 bits of each string, with the key (key ^ bytes of a character, other_key), as Python holds it.

values: (n,) object, contiguous and aligned; words: (n, 2) uint64. False, and words unspecified, if a value is no string of
type str. Raises ValueError and TypeError for other shapes and dtypes.
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
What the m rows of a person have of 2**12: floor(2**12/m) each, one more where m > 64 and a row's key is below t(m), and
all that is left for the row with the least key, of equal ones the first. Calls take turns.

r = 2**12 mod m, s = ceil(4 sqrt(r)), t(m) = 2**32 floor(2**32 (r - s)/m), or 0 where s > r. If more than r keys are below
t(m), they have nothing more.
)")
      .def(py::init<>())
      .def_property_readonly(
          "has_many", &Shares::has_many,
          "Whether somebody has more than 64 rows, so that all are counted again.")
      .def("count", &count, py::arg("persons").noconvert(), py::arg("keys").noconvert(),
           py::arg("n_people"), R"(
Counts rows of people, who have numbers below n_people.

persons: (n,) int64; keys: (n,) uint64. Raises ValueError for lengths and numbers that do not fit.
)")
      .def("count_again", &count_again, py::arg("persons").noconvert(), py::arg("keys").noconvert(),
           "Looks at all rows once more, where somebody has many.")
      .def("share", &share, py::arg("persons").noconvert(), py::arg("keys").noconvert(),
           py::arg("are_open").noconvert(), py::arg("shares").noconvert(), R"(
The shares of some of the rows of a pass over all, which begins with are_open = True: what is left is to be had.

persons: (n,) int64; keys: (n,) uint64; are_open: bool, one for each person; shares: (n,) int16. Raises ValueError for lengths and people that do not fit.
)");
}
