#include "dpgep/people.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "prefetch.hpp"
#include "splitmix.hpp"

namespace dpgep {
namespace {

// Rows that are looked at together, so that their memory arrives meanwhile.
constexpr Index rows_at_once = 64;
// Of so many rows, all that is left over is less than one row's share.
constexpr std::uint32_t few = 64;

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

std::uint64_t rotated(std::uint64_t word, int n) {
  return word << n | word >> (64 - n);
}

struct Sip {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1, v1 = rotated(v1, 13) ^ v0, v0 = rotated(v0, 32);
    v2 += v3, v3 = rotated(v3, 16) ^ v2;
    v0 += v3, v3 = rotated(v3, 21) ^ v0;
    v2 += v1, v1 = rotated(v1, 17) ^ v2, v2 = rotated(v2, 32);
  }
  void take(std::uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
  std::uint64_t end() {
    for (int i = 0; i < 4; ++i) round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

// Little-endian whatever the machine is.
std::uint64_t word_of(const std::uint8_t* bytes, std::size_t size) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < size; ++i) word |= static_cast<std::uint64_t>(bytes[i]) << 8 * i;
  return word;
}

std::uint64_t below_which_more(std::uint32_t m) {
  const auto rest = static_cast<std::uint64_t>(Shares::whole % m);
  const auto slack =
      static_cast<std::uint64_t>(std::ceil(4 * std::sqrt(static_cast<double>(rest))));
  return rest > slack ? ((rest - slack) << 32) / m << 32 : 0;
}

// Rows whose persons are asked for before they are looked at.
constexpr Index rows_ahead = 16;

// Calls use(i, person) for each row's person.
template <class People, class Use>
void for_each_row(const ConstVectorView<std::int64_t>& persons, People& people, const Use& use) {
  for (Index i = 0; i < persons.size(); ++i) {
    if (i + rows_ahead < persons.size()) expect_to_read(&people[persons[i + rows_ahead]]);
    use(i, people[persons[i]]);
  }
}

// The key below which a row of a person of n rows has one more.
std::uint64_t threshold(std::uint32_t n_rows) {
  static const auto known = [] {
    std::array<std::uint64_t, Shares::whole + 1> each{};
    for (std::uint32_t m = few + 1; m < each.size(); ++m) each[m] = below_which_more(m);
    return each;
  }();
  return n_rows < known.size() ? known[n_rows] : below_which_more(n_rows);
}

}  // namespace

Identity keyed_identity(const std::uint8_t* bytes, std::size_t size, const Identity& key) {
  Sip sip{key.first ^ 0x736f6d6570736575u, key.second ^ 0x646f72616e646f6du ^ 0xeeu,
          key.first ^ 0x6c7967656e657261u, key.second ^ 0x7465646279746573u};
  const std::size_t end = size - size % 8;
  for (std::size_t i = 0; i < end; i += 8) sip.take(word_of(bytes + i, 8));
  sip.take(word_of(bytes + end, size - end) | static_cast<std::uint64_t>(size) << 56);
  sip.v2 ^= 0xeeu;
  Identity identity;
  identity.first = sip.end();
  sip.v1 ^= 0xddu;
  identity.second = sip.end();
  return identity;
}

Numbering::Numbering(std::uint64_t seed) : seed_(seed), slots_(std::size_t{1} << 10) {}

std::size_t Numbering::place(const Identity& identity) const {
  const std::uint64_t word = splitmix(splitmix(identity.first ^ seed_) + identity.second);
  return static_cast<std::size_t>(word) & (slots_.size() - 1);
}

// At most three of four slots are taken. The identities stay where they are, so that the slots of
// before can go before there are new ones.
void Numbering::make_room(Index size) {
  if (size >= Index{std::numeric_limits<std::uint32_t>::max()}) {
    throw std::length_error("more than 2^32 - 2 people");
  }
  identities_.grow(size);
  std::size_t n_slots = slots_.size();
  while (4 * static_cast<std::size_t>(size) > 3 * n_slots) n_slots *= 2;
  if (n_slots == slots_.size()) return;
  slots_ = {};
  slots_.resize(n_slots);
  for (Index first = 0; first < size_; first += rows_at_once) {
    const Index n = std::min(rows_at_once, size_ - first);
    std::size_t places[rows_at_once];
    for (Index i = 0; i < n; ++i)
      expect_to_read(&slots_[places[i] = place(identities_[first + i])]);
    for (Index i = 0; i < n; ++i) {
      std::size_t at = places[i];
      while (slots_[at] != 0) at = (at + 1) & (n_slots - 1);
      slots_[at] = static_cast<std::uint32_t>(first + i + 1);
    }
  }
}

void Numbering::number(const ConstRows<std::uint64_t>& words, VectorView<std::int64_t> numbers,
                       bool is_open) {
  require(words.cols() == 2, "identities must have two words");
  require(numbers.size() == words.rows(), "numbers must have an entry for each row");
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Index first = 0; first < words.rows(); first += rows_at_once) {
    const Index n = std::min(rows_at_once, words.rows() - first);
    if (is_open) make_room(size_ + n);
    Identity each[rows_at_once];
    std::size_t places[rows_at_once];
    for (Index i = 0; i < n; ++i) {
      each[i] = {words(first + i, 0), words(first + i, 1)};
      expect_to_read(&slots_[places[i] = place(each[i])]);
    }
    for (Index i = 0; i < n; ++i) {
      if (const std::uint32_t known = slots_[places[i]]) expect_to_read(&identities_[known - 1]);
    }
    for (Index i = 0; i < n; ++i) {
      std::size_t at = places[i];
      while (slots_[at] != 0 && !(identities_[slots_[at] - 1] == each[i])) {
        at = (at + 1) & (slots_.size() - 1);
      }
      if (slots_[at] == 0 && is_open) {
        identities_[size_] = each[i];
        slots_[at] = static_cast<std::uint32_t>(++size_);
      }
      numbers[first + i] = static_cast<std::int64_t>(slots_[at]) - 1;
    }
  }
}

void Shares::require(const ConstVectorView<std::int64_t>& persons,
                     const ConstVectorView<std::uint64_t>& keys) const {
  dpgep::require(keys.size() == persons.size(), "keys must have an entry for each row");
  const auto n_people = static_cast<std::uint64_t>(n_people_);
  bool are_known = true;
  for (const std::int64_t p : persons) are_known &= static_cast<std::uint64_t>(p) < n_people;
  dpgep::require(are_known, "persons must be numbers from 0 to below that of people");
}

void Shares::count(const ConstVectorView<std::int64_t>& persons,
                   const ConstVectorView<std::uint64_t>& keys, Index n_people) {
  const std::lock_guard<std::mutex> lock(mutex_);
  people_.grow(n_people);
  n_people_ = std::max(n_people_, n_people);
  require(persons, keys);
  bool has_many = has_many_;
  for_each_row(persons, people_, [&](Index i, Person& person) {
    person.least = std::min(person.least, keys[i]);
    if (person.n_rows < std::numeric_limits<std::uint32_t>::max()) ++person.n_rows;
    has_many |= person.n_rows > few;
  });
  has_many_ = has_many;
}

void Shares::count_again(const ConstVectorView<std::int64_t>& persons,
                         const ConstVectorView<std::uint64_t>& keys) {
  const std::lock_guard<std::mutex> lock(mutex_);
  require(persons, keys);
  for_each_row(persons, people_, [&](Index i, Person& person) {
    if (person.n_rows <= few || person.n_below > whole) return;
    if (keys[i] < threshold(person.n_rows)) ++person.n_below;
  });
}

void Shares::share(const ConstVectorView<std::int64_t>& persons,
                   const ConstVectorView<std::uint64_t>& keys, VectorView<bool> are_open,
                   VectorView<std::int16_t> shares) {
  const std::lock_guard<std::mutex> lock(mutex_);
  require(persons, keys);
  dpgep::require(are_open.size() >= n_people_, "are_open must have an entry for each person");
  dpgep::require(shares.size() == persons.size(), "shares must have an entry for each row");
  for_each_row(persons, people_, [&](Index i, const Person& person) {
    dpgep::require(person.n_rows > 0, "a person has no rows that were counted");
    const std::uint32_t each = whole / person.n_rows;
    const std::uint32_t rest = whole % person.n_rows;
    const std::uint32_t n_more = person.n_below <= rest ? person.n_below : 0;
    std::uint32_t share = each;
    if (n_more > 0 && keys[i] < threshold(person.n_rows)) ++share;
    if (keys[i] == person.least && are_open[persons[i]]) {
      are_open[persons[i]] = false;
      share += rest - n_more;
    }
    shares[i] = static_cast<std::int16_t>(share);
  });
}

}  // namespace dpgep
