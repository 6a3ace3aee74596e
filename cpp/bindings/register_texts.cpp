#include <pybind11/stl.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "arrays.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

// Rows that are looked at together, so that their memory arrives meanwhile.
constexpr std::size_t rows_at_once = 64;

// Distinct strings, and the number of each in the order in which they came. It is here and not
// among the kernels, since it reads objects of Python.
class Texts {
 public:
  Texts() : slots_(std::size_t{1} << 12) {}

  std::size_t size() const { return found_.size(); }

  // numbers_i of the n strings from `texts` on, at most rows_at_once.
  void add(PyObject* const* texts, std::size_t n, std::int64_t* numbers) {
    while (2 * (found_.size() + n) > slots_.size()) grow();
    std::uint64_t hashes[rows_at_once];
    for (std::size_t i = 0; i < n; ++i) {
      hashes[i] = static_cast<std::uint64_t>(PyObject_Hash(texts[i]));
      expect(&slots_[place(hashes[i])]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      const Slot& slot = slots_[place(hashes[i])];
      if (slot.text != nullptr) expect(slot.text);
    }
    for (std::size_t i = 0; i < n; ++i) numbers[i] = number(texts[i], hashes[i]);
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    PyObject* text = nullptr;  // borrowed from the caller's array
    std::int64_t number = 0;
  };

  static void expect([[maybe_unused]] const void* address) {
#if defined(__GNUC__)
    __builtin_prefetch(address);
#endif
  }

  std::size_t place(std::uint64_t hash) const {
    return static_cast<std::size_t>(hash) & (slots_.size() - 1);
  }

  std::int64_t number(PyObject* text, std::uint64_t hash) {
    for (std::size_t at = place(hash);; at = (at + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[at];
      if (slot.text == nullptr) {
        slot = {hash, text, static_cast<std::int64_t>(found_.size())};
        found_.push_back(slot);
        return slot.number;
      }
      if (slot.hash == hash && (slot.text == text || PyUnicode_Compare(slot.text, text) == 0)) {
        return slot.number;
      }
    }
  }

  void grow() {
    slots_.assign(2 * slots_.size(), {});
    for (const Slot& each : found_) {
      std::size_t at = place(each.hash);
      while (slots_[at].text != nullptr) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = each;
    }
  }

  std::vector<Slot> slots_, found_;
};

std::optional<py::array_t<std::int64_t>> number_texts(const py::array& values, py::array& numbers) {
  if (values.dtype().kind() != 'O') throw py::type_error("values must have dtype object");
  require_ndim(values, 1, "values");
  require_aligned(values, "values");
  if ((values.flags() & py::array::c_style) == 0) {
    throw py::value_error("values must be contiguous");
  }
  auto target = mutable_vector<std::int64_t>(numbers, "numbers");
  if (target.size() != values.size()) throw py::value_error("numbers must have an entry for each");
  const auto n = static_cast<std::size_t>(values.size());
  PyObject* const* const texts = static_cast<PyObject* const*>(values.data());
  for (std::size_t i = 0; i < n; ++i) {
    if (texts[i] == nullptr || !PyUnicode_CheckExact(texts[i])) return std::nullopt;
  }
  Texts found;
  std::vector<std::int64_t> first;
  for (std::size_t begin = 0; begin < n; begin += rows_at_once) {
    const std::size_t n_here = std::min(rows_at_once, n - begin);
    std::int64_t* const out = target.data() + begin;
    found.add(texts + begin, n_here, out);
    for (std::size_t i = 0; i < n_here; ++i) {
      if (out[i] == static_cast<std::int64_t>(first.size())) {
        first.push_back(static_cast<std::int64_t>(begin + i));
      }
    }
  }
  return py::array_t<std::int64_t>(static_cast<py::ssize_t>(first.size()), first.data());
}

}  // namespace

void register_texts(py::module_& module) {
  module.def("number_texts", &number_texts, py::arg("values").noconvert(),
             py::arg("numbers").noconvert(), R"(
The number of each string among the distinct ones, in the order in which they come; where each of these comes first.

values: (n,) object, contiguous and aligned; numbers: (n,) int64. None, and numbers unspecified, if a value is no string of type
str. Raises ValueError and TypeError for other shapes and dtypes.
)");
}
