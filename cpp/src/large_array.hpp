// Arrays of megabytes, in huge pages where the system has them: a page's first touch costs
// microseconds, and entries that are read here and there in small pages miss the processor's table
// of pages.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "dpgep/typedefs.hpp"

namespace dpgep {

// Not initialized.
template <class T>
class LargeArray {
  static_assert(std::is_trivial_v<T>);

 public:
  explicit LargeArray(Index size) {
    const std::size_t n_bytes = static_cast<std::size_t>(size) * sizeof(T);
    const auto alignment = std::align_val_t{n_bytes < 2 * huge_page ? alignof(T) : huge_page};
    memory_ = Memory(static_cast<T*>(::operator new(n_bytes, alignment)), Free{alignment});
#if defined(__linux__)
    // An advice: where it is refused, pages are small.
    if (n_bytes >= 2 * huge_page) madvise(memory_.get(), n_bytes, MADV_HUGEPAGE);
#endif
  }

  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }

 private:
  static constexpr std::size_t huge_page = std::size_t{1} << 21;

  struct Free {
    std::align_val_t alignment{};
    void operator()(T* memory) const { ::operator delete(memory, alignment); }
  };
  using Memory = std::unique_ptr<T, Free>;

  Memory memory_;
};

}  // namespace dpgep
