// Whose each row is, and how much of a person it counts, in memory that grows with the people, not
// with the rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// An array that grows without a copy of what it holds. Entries begin as T(), and pieces in which
// all are T() need not be there.
template <class T>
class GrowingArray {
 public:
  T& operator[](Index i) { return pieces_[piece(i)][i & mask]; }
  const T& operator[](Index i) const { return pieces_[piece(i)][i & mask]; }
  T get(Index i) const { return piece(i) < pieces_.size() && pieces_[piece(i)] ? (*this)[i] : T(); }
  T& make(Index i) {
    if (pieces_.size() <= piece(i)) pieces_.resize(piece(i) + 1);
    if (!pieces_[piece(i)]) pieces_[piece(i)] = std::make_unique<T[]>(std::size_t{1} << bits);
    return (*this)[i];
  }
  void grow(Index size) {
    while (static_cast<Index>(pieces_.size()) << bits < size) {
      pieces_.push_back(std::make_unique<T[]>(std::size_t{1} << bits));
    }
  }

 private:
  static constexpr int bits = 12;
  static constexpr Index mask = (Index{1} << bits) - 1;
  static std::size_t piece(Index i) { return static_cast<std::size_t>(i >> bits); }
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

// The same of texts one after the other, of which text i is bytes[ends_i] to bytes[ends_(i+1) - 1],
// as (n, 2) words. Throws std::invalid_argument for other shapes, and ends that do not ascend or
// are beyond the bytes.
void keyed_identities(const ConstVectorView<std::int64_t>& ends,
                      const ConstVectorView<std::uint8_t>& bytes, const Identity& key,
                      Rows<std::uint64_t> words);

// Identities one after the other, in as few bytes each as the longest takes: its first word without
// leading zeros, or 16 where a second word is not 0.
class PackedIdentities {
 public:
  Index size() const { return size_; }
  Identity operator[](Index i) const;
  const std::uint8_t* address(Index i) const {
    return &pieces_[static_cast<std::size_t>(i >> bits)]
                   [static_cast<std::size_t>(i & mask) * width_];
  }
  void append(const Identity& identity);

 private:
  static constexpr int bits = 12;
  static constexpr Index mask = (Index{1} << bits) - 1;
  using Piece = std::unique_ptr<std::uint8_t[]>;

  Piece empty_piece() const;
  void write(const Identity& identity, std::uint8_t* at) const;
  void widen(std::size_t width);

  std::size_t width_ = 1;
  Index size_ = 0;
  std::vector<Piece> pieces_;
};

// Numbers people in the order in which they come. The bytes of an identity and some 6 more a
// person. Calls take turns.
class Numbering {
 public:
  // People's places in the table follow from the seed: whoever chooses ids should not know it.
  explicit Numbering(std::uint64_t seed);

  Index size() const { return people_.size(); }

  // numbers_i of the identity words_i, (n, 2). Of who has not come before, the next one if
  // `is_open`, else -1. Throws std::invalid_argument for other shapes, std::length_error beyond
  // 2^32 - 2 people.
  void number(const ConstRows<std::uint64_t>& words, VectorView<std::int64_t> numbers,
              bool is_open);

 private:
  std::uint64_t hash(const Identity& identity) const;
  std::size_t place(std::uint64_t hash) const;
  std::uint32_t slot(Index number, std::uint64_t hash) const;
  bool may_be(std::uint32_t slot, std::uint64_t hash) const;
  Index number_in(std::uint32_t slot) const;
  std::size_t next(std::size_t at) const { return at + 1 == slots_.size() ? 0 : at + 1; }
  void make_room(Index size);

  std::uint64_t seed_;
  PackedIdentities people_;
  int number_bits_;
  std::vector<std::uint32_t> slots_;  // 0, or a number plus 1 below bits of the hash
  std::mutex mutex_;
};

// What rows have of their persons, of each of whom there are 2^bits. Of a person's m rows, one of u
// units of 2^-40 should have x = 2^bits u/max(m, M) of these, and all together T, their sum
// rounded. M rows count alike; without units, each has all of them. A row has floor(x), one more if
// m > 2^(bits - 6) and its key is below t, and all that is left of T if it has the least key among
// those that have units (of equal ones the first). With F = T - sum floor(x),
//
//   t = 2^32 floor(2^32 (x - floor(x)) (F - s)/F), s = ceil(4 sqrt(F)), or 0 where s > F.
//
// If more than F keys are below t, they have nothing more. All shares of a person add up to T,
// which is 2^bits where m >= M and there are no units. The least key is known by its first 40 bits:
// of 10^8 rows two of one person have these alike, and are least, with a probability of 10^-4; then
// the first has what is left. 6 bytes a person, 16 more with units, and some for who has many rows.
// Calls take turns.
class Shares {
 public:
  // Throws std::invalid_argument unless M is from 1 to 2^12, and bits from 12 to 40.
  Shares(Index most_alike, int bits, bool weighted);

  // Rows of people, who are numbered from 0 on, in one of the passes over all of them: `end_pass`
  // says whether there is to be another. Throws std::invalid_argument for lengths that do not fit,
  // units that are not from 0 to 2^40, negative numbers and numbers from eight times the rows on.
  void count(const ConstVectorView<std::int64_t>& persons,
             const ConstVectorView<std::uint64_t>& keys,
             const ConstVectorView<std::int64_t>& units);
  bool end_pass();

  // The shares of some of the rows of a pass over all, which begins with a bit of 1 for each person
  // in `are_open`: what is left for them is to be had. Throws as above, and for people without
  // rows.
  template <class Share>
  void share(const ConstVectorView<std::int64_t>& persons,
             const ConstVectorView<std::uint64_t>& keys, const ConstVectorView<std::int64_t>& units,
             VectorView<std::uint8_t> are_open, VectorView<Share> shares);

 private:
  // 40 bits of the least key, and the number of rows modulo 2^8.
  struct Person {
    std::uint16_t words[3] = {0xFFFF, 0xFFFF, 0xFF00};

    std::uint64_t least() const {
      return std::uint64_t{words[0]} << 24 | std::uint64_t{words[1]} << 8 | words[2] >> 8;
    }
    void set_least(std::uint64_t key) {
      words[0] = static_cast<std::uint16_t>(key >> 24);
      words[1] = static_cast<std::uint16_t>(key >> 8);
      words[2] = static_cast<std::uint16_t>((key & 0xFF) << 8 | (words[2] & 0xFF));
    }
  };
  struct Weighed {
    std::uint64_t units = 0;   // at most 2^63
    std::uint64_t floors = 0;  // the sum of floor(x)
  };
  struct Due {
    std::uint64_t unit, total, floors;  // x = u/unit
    std::uint64_t whole_share;          // floor(x) of a row with all units
  };
  enum class Pass { rows, floors, more, none };

  std::uint64_t n_rows(Index person) const;
  void add_row(Index person);
  Due due(std::uint64_t n_rows) const;
  Due due(Index person, std::uint64_t n_rows) const;
  std::uint64_t threshold(const Due& due, std::uint64_t units) const;
  void require(const ConstVectorView<std::int64_t>& persons,
               const ConstVectorView<std::uint64_t>& keys,
               const ConstVectorView<std::int64_t>& units, std::uint64_t n_people) const;
  template <class Use>
  void for_each_row(const ConstVectorView<std::int64_t>& persons,
                    const ConstVectorView<std::int64_t>& units, const Use& use);

  const std::uint64_t most_alike_;
  const int bits_;
  const bool weighted_;
  const std::uint64_t few_;    // rows, for whom all that is left over is little
  std::array<Due, 256> dues_;  // of whom has as many rows, without units
  GrowingArray<Person> people_;
  GrowingArray<Weighed> weighed_;
  GrowingArray<std::uint32_t> n_full_;  // 2^8 rows each
  GrowingArray<std::uint32_t> n_more_;  // keys below t
  Pass pass_ = Pass::rows;
  Index n_people_ = 0;
  std::uint64_t n_rows_ = 0;
  std::uint64_t most_rows_ = 0;
  std::mutex mutex_;
};

}  // namespace dpgep
