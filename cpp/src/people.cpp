#include "dpgep/people.hpp"

#include <algorithm>
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
__extension__ using Wide = unsigned __int128;

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

// Rows whose persons are asked for before they are looked at.
constexpr Index rows_ahead = 16;

// Units of a row: at most 2^40 of them. Numbers of people are below eight times those of rows.
constexpr int unit_bits = 40;
constexpr std::int64_t most_units = std::int64_t{1} << unit_bits;
constexpr std::uint64_t numbers_per_row = 8;

std::uint64_t word(const std::uint32_t (&halves)[2]) {
  return std::uint64_t{halves[1]} << 32 | halves[0];
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
  first_.grow(size);
  if (has_second_) second_.grow(size);
  std::size_t n_slots = slots_.size();
  while (4 * static_cast<std::size_t>(size) > 3 * n_slots) n_slots *= 2;
  if (n_slots == slots_.size()) return;
  slots_ = {};
  slots_.resize(n_slots);
  for (Index first = 0; first < size_; first += rows_at_once) {
    const Index n = std::min(rows_at_once, size_ - first);
    std::size_t places[rows_at_once];
    for (Index i = 0; i < n; ++i) expect_to_read(&slots_[places[i] = place(identity(first + i))]);
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
    Identity each[rows_at_once];
    for (Index i = 0; i < n; ++i) {
      each[i] = {words(first + i, 0), words(first + i, 1)};
      has_second_ |= is_open && each[i].second != 0;
    }
    if (is_open) make_room(size_ + n);
    std::size_t places[rows_at_once];
    for (Index i = 0; i < n; ++i) expect_to_read(&slots_[places[i] = place(each[i])]);
    for (Index i = 0; i < n; ++i) {
      if (const std::uint32_t known = slots_[places[i]]) expect_to_read(&first_[known - 1]);
    }
    for (Index i = 0; i < n; ++i) {
      std::size_t at = places[i];
      while (slots_[at] != 0 && !(identity(slots_[at] - 1) == each[i])) {
        at = (at + 1) & (slots_.size() - 1);
      }
      if (slots_[at] == 0 && is_open) {
        first_[size_] = each[i].first;
        if (has_second_) second_[size_] = each[i].second;
        slots_[at] = static_cast<std::uint32_t>(++size_);
      }
      numbers[first + i] = static_cast<std::int64_t>(slots_[at]) - 1;
    }
  }
}

Shares::Shares(Index most_alike, int bits, bool weighted)
    : most_alike_(static_cast<std::uint64_t>(most_alike)),
      bits_(bits),
      weighted_(weighted),
      few_(std::uint64_t{1} << std::clamp(bits - 6, 0, 63)) {
  dpgep::require(most_alike >= 1 && most_alike <= 4096, "most_alike must be from 1 to 4096");
  dpgep::require(bits >= 12 && bits <= unit_bits, "bits must be from 12 to 40");
}

void Shares::require(const ConstVectorView<std::int64_t>& persons,
                     const ConstVectorView<std::uint64_t>& keys,
                     const ConstVectorView<std::int64_t>& units, std::uint64_t n_people) const {
  dpgep::require(keys.size() == persons.size(), "keys must have an entry for each row");
  dpgep::require(units.size() == (weighted_ ? persons.size() : 0),
                 "units must have an entry for each row, or be None");
  dpgep::require((units.array() >= 0).all() && (units.array() <= most_units).all(),
                 "units must be from 0 to 2**40");
  bool are_known = true;
  for (const std::int64_t p : persons) are_known &= static_cast<std::uint64_t>(p) < n_people;
  dpgep::require(are_known, "persons must be numbers from 0 on, of people who are known");
}

// Calls use(i, number of its person, its units) for each row.
template <class Use>
void Shares::for_each_row(const ConstVectorView<std::int64_t>& persons,
                          const ConstVectorView<std::int64_t>& units, const Use& use) {
  for (Index i = 0; i < persons.size(); ++i) {
    if (i + rows_ahead < persons.size()) {
      expect_to_read(&people_[persons[i + rows_ahead]]);
      if (weighted_) expect_to_read(&weighed_[persons[i + rows_ahead]]);
    }
    use(i, persons[i], static_cast<std::uint64_t>(weighted_ ? units[i] : most_units));
  }
}

Shares::Due Shares::due(Index person) const {
  const std::uint64_t m = people_[person].n_rows;
  const std::uint64_t alike = std::max(m, most_alike_);
  const std::uint64_t unit = alike << (unit_bits - bits_);
  if (weighted_) {
    const Weighed& its = weighed_[person];
    return {unit, std::max((its.units + unit / 2) / unit, its.floors), its.floors};
  }
  const std::uint64_t whole = std::uint64_t{1} << bits_;
  return {unit, m >= most_alike_ ? whole : (whole * m + alike / 2) / alike, m * (whole / alike)};
}

std::uint64_t Shares::threshold(const Due& due, std::uint64_t units) const {
  const std::uint64_t rest = due.total - due.floors;
  const auto slack =
      static_cast<std::uint64_t>(std::ceil(4 * std::sqrt(static_cast<double>(rest))));
  if (rest <= slack) return 0;
  const Wide part = Wide{units % due.unit} * (rest - slack) << 32;
  return static_cast<std::uint64_t>(part / (Wide{due.unit} * rest)) << 32;
}

void Shares::count(const ConstVectorView<std::int64_t>& persons,
                   const ConstVectorView<std::uint64_t>& keys,
                   const ConstVectorView<std::int64_t>& units) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pass_ == Pass::rows) {
    const auto n = static_cast<std::uint64_t>(persons.size());
    require(persons, keys, units, numbers_per_row * (n_rows_ + n));
    n_rows_ += n;
    if (n > 0) n_people_ = std::max(n_people_, Index{persons.maxCoeff()} + 1);
    people_.grow(n_people_);
    if (weighted_) weighed_.grow(n_people_);
    std::uint32_t most = most_rows_;
    for_each_row(persons, units, [&](Index i, Index p, std::uint64_t unit) {
      Person& person = people_[p];
      if (unit > 0 && keys[i] < word(person.least)) {
        person.least[0] = static_cast<std::uint32_t>(keys[i]);
        person.least[1] = static_cast<std::uint32_t>(keys[i] >> 32);
      }
      if (person.n_rows < std::numeric_limits<std::uint32_t>::max()) ++person.n_rows;
      most = std::max(most, person.n_rows);
      if (weighted_) weighed_[p].units = std::min(weighed_[p].units + unit, std::uint64_t{1} << 63);
    });
    most_rows_ = most;
    return;
  }
  require(persons, keys, units, static_cast<std::uint64_t>(n_people_));
  for_each_row(persons, units, [&](Index i, Index p, std::uint64_t unit) {
    if (pass_ == Pass::floors) {
      weighed_[p].floors += unit / due(p).unit;
    } else if (people_[p].n_rows > few_ && keys[i] < threshold(due(p), unit)) {
      if (n_more_[p] < std::numeric_limits<std::uint32_t>::max()) ++n_more_[p];
    }
  });
}

bool Shares::end_pass() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pass_ == Pass::rows && weighted_ && most_rows_ > 1) {
    pass_ = Pass::floors;
  } else if (pass_ < Pass::more && most_rows_ > few_) {
    pass_ = Pass::more;
    n_more_.grow(n_people_);
  } else {
    pass_ = Pass::none;
  }
  return pass_ != Pass::none;
}

template <class Share>
void Shares::share(const ConstVectorView<std::int64_t>& persons,
                   const ConstVectorView<std::uint64_t>& keys,
                   const ConstVectorView<std::int64_t>& units, VectorView<bool> are_open,
                   VectorView<Share> shares) {
  const std::lock_guard<std::mutex> lock(mutex_);
  dpgep::require(pass_ == Pass::none, "rows were not counted, or are to be counted again");
  require(persons, keys, units, static_cast<std::uint64_t>(n_people_));
  dpgep::require(are_open.size() >= n_people_, "are_open must have an entry for each person");
  dpgep::require(shares.size() == persons.size(), "shares must have an entry for each row");
  dpgep::require(bits_ < std::numeric_limits<Share>::digits, "shares must have room for bits");
  for_each_row(persons, units, [&](Index i, Index p, std::uint64_t unit) {
    const Person& person = people_[p];
    dpgep::require(person.n_rows > 0, "a person has no rows that were counted");
    const Due its = due(p);
    std::uint64_t share = unit / its.unit;
    if (person.n_rows == 1) {
      share = its.total;
    } else {
      std::uint64_t left = its.total - its.floors;
      if (person.n_rows > few_ && n_more_[p] > 0 && n_more_[p] <= left) {
        left -= n_more_[p];
        if (keys[i] < threshold(its, unit)) ++share;
      }
      if (unit > 0 && keys[i] == word(person.least) && are_open[p]) {
        are_open[p] = false;
        share += left;
      }
    }
    shares[i] = static_cast<Share>(share);
  });
}

template void Shares::share(const ConstVectorView<std::int64_t>&,
                            const ConstVectorView<std::uint64_t>&,
                            const ConstVectorView<std::int64_t>&, VectorView<bool>,
                            VectorView<std::int16_t>);
template void Shares::share(const ConstVectorView<std::int64_t>&,
                            const ConstVectorView<std::uint64_t>&,
                            const ConstVectorView<std::int64_t>&, VectorView<bool>,
                            VectorView<std::int64_t>);

}  // namespace dpgep
