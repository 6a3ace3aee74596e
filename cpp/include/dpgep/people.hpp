// Whose each row is, and how much of a person it counts, in memory that grows with the people, not
// with the rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// An array that grows without a copy of what it holds. Entries begin as T().
template <class T>
class GrowingArray {
 public:
  T& operator[](Index i) { return pieces_[static_cast<std::size_t>(i >> bits)][i & mask]; }
  const T& operator[](Index i) const {
    return pieces_[static_cast<std::size_t>(i >> bits)][i & mask];
  }
  void grow(Index size) {
    while (static_cast<Index>(pieces_.size()) << bits < size) {
      pieces_.push_back(std::make_unique<T[]>(std::size_t{1} << bits));
    }
  }

 private:
  static constexpr int bits = 12;
  static constexpr Index mask = (Index{1} << bits) - 1;
  std::vector<std::unique_ptr<T[]>> pieces_;
};

// 128 bits that stand for a person.
struct Identity {
  std::uint64_t first = 0, second = 0;
  bool operator==(const Identity& other) const {
    return first == other.first && second == other.second;
  }
};

// SipHash-2-4 with 128 bits: of texts whose writers do not know the key, no two are likely to have
// the same.
Identity keyed_identity(const std::uint8_t* bytes, std::size_t size, const Identity& key);

// Numbers people in the order in which they come. Some 16 + 4 * 2 bytes a person. Calls take turns.
class Numbering {
 public:
  // People's places in the table follow from the seed: whoever chooses ids should not know it.
  explicit Numbering(std::uint64_t seed);

  Index size() const { return size_; }

  // numbers_i of the identity words_i, (n, 2). Of who has not come before, the next one if
  // `is_open`, else -1. Throws std::invalid_argument for other shapes, std::length_error beyond
  // 2^32 - 2 people.
  void number(const ConstRows<std::uint64_t>& words, VectorView<std::int64_t> numbers,
              bool is_open);

 private:
  std::size_t place(const Identity& identity) const;
  void make_room(Index size);

  std::uint64_t seed_;
  Index size_ = 0;
  GrowingArray<Identity> identities_;
  std::vector<std::uint32_t> slots_;  // a number plus 1, or 0
  std::mutex mutex_;
};

// Shares of a whole, 2^12, which the m rows of a person have: floor(2^12/m) each, one more where m
// > 64 and a row's key is below t(m), all that is left for the row with the least key (of equal
// ones the first). With r = 2^12 mod m,
//
//   t(m) = 2^32 floor(2^32 (r - s)/m), s = ceil(4 sqrt(r)), or 0 where s > r.
//
// If more than r keys are below t(m), they have nothing more. All shares of a person add up to the
// whole. 16 bytes a person. Calls take turns.
class Shares {
 public:
  static constexpr Index whole = 1 << 12;

  // Rows of people, who are numbered from 0 on. Throws std::invalid_argument for lengths that do
  // not fit, and for numbers below 0 or from n_people on.
  void count(const ConstVectorView<std::int64_t>& persons,
             const ConstVectorView<std::uint64_t>& keys, Index n_people);

  // Whether somebody has more than 64 rows: then they are all to be looked at again.
  bool has_many() const { return has_many_; }
  void count_again(const ConstVectorView<std::int64_t>& persons,
                   const ConstVectorView<std::uint64_t>& keys);

  // The shares of some of the rows of a pass over all, which begins with all people `are_open`:
  // what is left for them is to be had. Throws as above, and for people without rows.
  void share(const ConstVectorView<std::int64_t>& persons,
             const ConstVectorView<std::uint64_t>& keys, VectorView<bool> are_open,
             VectorView<std::int16_t> shares);

 private:
  struct Person {
    std::uint64_t least = ~std::uint64_t{0};
    std::uint32_t n_rows = 0;
    std::uint16_t n_below = 0;  // keys below t(m); 2^12 + 1 stands for more as well
  };
  void require(const ConstVectorView<std::int64_t>& persons,
               const ConstVectorView<std::uint64_t>& keys) const;

  GrowingArray<Person> people_;
  Index n_people_ = 0;
  bool has_many_ = false;
  std::mutex mutex_;
};

}  // namespace dpgep
