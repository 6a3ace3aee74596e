#include "dpgep/entropy.hpp"

#include <algorithm>
#include <system_error>

#if defined(__linux__)
#include <sys/random.h>

#include <cerrno>
#elif defined(_WIN32)
// windows.h must come first
#include <windows.h>
// needs the types of windows.h
#include <bcrypt.h>
#pragma comment(lib, "bcrypt")
#else
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace dpgep {
namespace {

// The number of bytes written, at least one.
std::size_t fill_some(std::uint8_t* out, std::size_t n) {
#if defined(__linux__)
  for (;;) {
    const ssize_t written = ::getrandom(out, n, 0);
    if (written > 0) return static_cast<std::size_t>(written);
    // A signal may interrupt the wait for the pool to be seeded; anything else is a failure.
    if (written < 0 && errno != EINTR) {
      throw std::system_error(errno, std::generic_category(), "getrandom failed");
    }
  }
#elif defined(_WIN32)
  const std::size_t request = std::min<std::size_t>(n, 1u << 20);
  const NTSTATUS status =
      ::BCryptGenRandom(nullptr, out, static_cast<ULONG>(request), BCRYPT_USE_SYSTEM_PREFERRED_RNG);
  if (status < 0) {
    throw std::system_error(static_cast<int>(status), std::system_category(),
                            "BCryptGenRandom failed");
  }
  return request;
#else
  const std::size_t request = std::min<std::size_t>(n, 256);  // the most that getentropy serves
  if (::getentropy(out, request) != 0) {
    throw std::system_error(errno, std::generic_category(), "getentropy failed");
  }
  return request;
#endif
}

}  // namespace

void fill_from_operating_system(std::uint8_t* out, std::size_t n) {
  while (n > 0) {
    const std::size_t written = fill_some(out, n);
    out += written;
    n -= written;
  }
}

}  // namespace dpgep
