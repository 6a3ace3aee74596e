#include "arrays.hpp"
#include "dpgep/crc32.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;

namespace {

// The bytes of an object, which stay where they are while this lives.
class Bytes {
 public:
  explicit Bytes(const py::buffer& object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw py::error_already_set();
  }
  ~Bytes() { PyBuffer_Release(&view_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  ConstVectorView<std::uint8_t> get() const {
    return {static_cast<const std::uint8_t*>(view_.buf), view_.len};
  }

 private:
  Py_buffer view_{};
};

std::uint32_t checksum(const py::buffer& content, std::uint32_t before) {
  const Bytes bytes(content);
  // Safe: only memory is read that `bytes` keeps.
  const py::gil_scoped_release no_gil;
  return crc32(bytes.get(), before);
}

}  // namespace

void register_crc32(py::module_& module) {
  module.def("crc32", &checksum, py::arg("data"), py::arg("value") = 0, R"(
zlib.crc32(data, value), several times as fast.

data: bytes, or a contiguous buffer of them. Raises BufferError for one that is not contiguous.
)");
}
