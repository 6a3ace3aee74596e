#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include "arrays.hpp"
#include "dpgep/noise_stream.hpp"
#include "dpgep/normal.hpp"
#include "dpgep/wipe.hpp"
#include "register.hpp"

namespace py = pybind11;
using namespace dpgep;
using namespace dpgep::bindings;

namespace {

template <std::size_t size>
std::array<std::uint8_t, size> fixed_bytes(const py::bytes& source, const char* name) {
  const auto view = static_cast<std::string_view>(source);
  if (view.size() != size) {
    throw py::value_error(std::string(name) + " must have " + std::to_string(size) +
                          " bytes, not " + std::to_string(view.size()));
  }
  std::array<std::uint8_t, size> bytes;
  std::copy(view.begin(), view.end(), bytes.begin());
  return bytes;
}

std::unique_ptr<NoiseStream> make_stream(const std::optional<py::bytes>& key, std::uint64_t nonce,
                                         std::shared_ptr<Transcript> transcript) {
  std::unique_ptr<NoiseStream> stream;
  if (key) {
    auto key_bytes = fixed_bytes<chacha20::key_size>(*key, "key");
    stream = std::make_unique<NoiseStream>(key_bytes, nonce);
    wipe(key_bytes.data(), key_bytes.size());
  } else {
    stream = std::make_unique<NoiseStream>(nonce);
  }
  stream->attach(std::move(transcript));
  return stream;
}

py::bytes read_bytes(NoiseStream& stream, py::ssize_t n) {
  if (n < 0) throw py::value_error("n must satisfy n >= 0, not " + std::to_string(n));
  auto result = py::reinterpret_steal<py::bytes>(PyBytes_FromStringAndSize(nullptr, n));
  if (!result) throw py::error_already_set();
  auto* const out = reinterpret_cast<std::uint8_t*>(PyBytes_AS_STRING(result.ptr()));
  // Safe: nobody else has seen the new bytes object, and the stream has a lock of its own. The lock
  // is taken and given back without the GIL, so the two cannot wait for each other.
  const py::gil_scoped_release no_gil;
  const auto size = static_cast<std::size_t>(n);
  const auto read = [&] { NoiseStream::Lease(stream).read(out, size); };
  if (stream.transcript() == nullptr) {
    read();
  } else {
    stream.transcript()->bytes(out, size, read);
  }
  return result;
}

void fill(NoiseStream& stream, py::array& out) {
  VectorView<double> view = mutable_vector<double>(out, "out");
  // Safe: only raw memory is touched, which the caller's reference keeps alive; the stream has a
  // lock of its own.
  const py::gil_scoped_release no_gil;
  NoiseStream::Lease lease(stream);
  fill_normal(lease, view.data(), view.size());
}

py::bytes block(const py::bytes& key, std::uint32_t counter, const py::bytes& nonce) {
  const auto key_bytes = fixed_bytes<chacha20::key_size>(key, "key");
  const auto nonce_bytes = fixed_bytes<chacha20::nonce_size>(nonce, "nonce");
  const auto out = chacha20::block(chacha20::initial_state(key_bytes, counter, nonce_bytes));
  return {reinterpret_cast<const char*>(out.data()), out.size()};
}

}  // namespace

void register_noise_stream(py::module_& module) {
  // module_local: two variants may be loaded into one process.
  py::class_<NoiseStream>(module, "NoiseStream", py::module_local(), py::is_final(), R"(
A stream of random bytes: the ChaCha20 key stream (RFC 8439) from block 0.

key: 32 bytes, or None for a key from the operating system, which a forked child draws again.
With a key the stream is deterministic, in a forked child too. nonce: 64-bit, little-endian in the
first 8 bytes of the 96-bit nonce; the last 4 count the wraps of the 32-bit block counter. transcript: of an
audit (Transcript); None in all other runs.

Calls from several threads are safe; each draws one unbroken piece of the stream. Key and buffer are
wiped when the stream is destroyed or keyed again. (A child made by a system call that bypasses the
C library's fork is not noticed.)

Raises ValueError for a key of another length, RuntimeError if the operating system gives no key.
)")
      .def(py::init(&make_stream), py::arg("key") = py::none(), py::arg("nonce").noconvert() = 0,
           py::arg("transcript") = py::none())
      .def_property_readonly("seeded", &NoiseStream::seeded, "Whether a key was given.")
      .def("bytes", &read_bytes, py::arg("n").noconvert(), "The next n bytes of the key stream.")
      .def("normal", &fill, py::arg("out").noconvert(), R"(
Fill out, 1-D contiguous float64, with independent N(0, 1).

Box and Muller: a pair takes two little-endian 64-bit words w1, w2 of the stream; with
u = (w1 + 1) 2**-64, r = sqrt(-2 log u), t = 2 pi (w2 >> 11) 2**-53 it is r cos t, r sin t. An odd
length drops the last sine. The tail reaches 9.4.
)");
  module.def("chacha20_block", &block, py::arg("key"), py::arg("counter").noconvert(),
             py::arg("nonce"),
             "One 64-byte ChaCha20 block (RFC 8439, section 2.3): 32-byte key, 12-byte nonce.");
}
