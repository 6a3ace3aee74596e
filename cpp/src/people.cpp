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

std::uint64_t whole_word_of(const std::uint8_t* bytes) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
  std::uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
#else
  return word_of(bytes, 8);
#endif
}

// Rows whose persons are asked for before they are looked at.
constexpr Index rows_ahead = 16;

// Units of a row: at most 2^40 of them. Numbers of people are below eight times those of rows.
constexpr int unit_bits = 40;
constexpr std::int64_t most_units = std::int64_t{1} << unit_bits;
constexpr std::uint64_t numbers_per_row = 8;

// Of a key, what is kept of the least one.
std::uint64_t kept(std::uint64_t key) {
  return key >> 24;
}

// Seven of eight slots are taken at most.
bool has_room(std::size_t n_slots, Index n) {
  return 8 * static_cast<std::size_t>(n) <= 7 * n_slots;
}

int bit_width(std::uint64_t word) {
  int width = 0;
  for (; word != 0; word >>= 1) ++width;
  return width;
}

}  // namespace

Identity keyed_identity(const std::uint8_t* bytes, std::size_t size, const Identity& key) {
  Sip sip{key.first ^ 0x736f6d6570736575u, key.second ^ 0x646f72616e646f6du ^ 0xeeu,
          key.first ^ 0x6c7967656e657261u, key.second ^ 0x7465646279746573u};
  const std::size_t end = size - size % 8;
  for (std::size_t i = 0; i < end; i += 8) sip.take(whole_word_of(bytes + i));
  sip.take(word_of(bytes + end, size - end) | static_cast<std::uint64_t>(size) << 56);
  sip.v2 ^= 0xeeu;
  Identity identity;
  identity.first = sip.end();
  sip.v1 ^= 0xddu;
  identity.second = sip.end();
  return identity;
}

void keyed_identities(const ConstVectorView<std::int64_t>& ends,
                      const ConstVectorView<std::uint8_t>& bytes, const Identity& key,
                      Rows<std::uint64_t> words) {
  require(ends.size() == words.rows() + 1 && words.cols() == 2,
          "words must have two entries for each text, and ends one more than there are texts");
  for (Index i = 0; i < words.rows(); ++i) {
    require(0 <= ends[i] && ends[i] <= ends[i + 1] && ends[i + 1] <= bytes.size(),
            "ends must be ascending places among the bytes");
    const auto size = static_cast<std::size_t>(ends[i + 1] - ends[i]);
    const Identity identity = keyed_identity(bytes.data() + ends[i], size, key);
    words(i, 0) = identity.first;
    words(i, 1) = identity.second;
  }
}

// Words are read whole, and end beyond their bytes.
PackedIdentities::Piece PackedIdentities::empty_piece() const {
  return std::make_unique<std::uint8_t[]>((width_ << bits) + sizeof(std::uint64_t));
}

// It is inline, since it is asked for each row.
inline Identity PackedIdentities::operator[](Index i) const {
  const std::uint8_t* const at = address(i);
  Identity identity;
  identity.first = whole_word_of(at);
  if (width_ < 8) identity.first &= (std::uint64_t{1} << 8 * width_) - 1;
  if (width_ > 8) identity.second = whole_word_of(at + 8);
  return identity;
}

void PackedIdentities::write(const Identity& identity, std::uint8_t* at) const {
  for (std::size_t i = 0; i < width_; ++i) {
    const std::uint64_t word = i < 8 ? identity.first : identity.second;
    at[i] = static_cast<std::uint8_t>(word >> 8 * (i % 8));
  }
}

void PackedIdentities::widen(std::size_t width) {
  PackedIdentities wider;
  wider.width_ = width;
  for (Index first = 0; first < size_; first += Index{1} << bits) {
    Piece piece = wider.empty_piece();
    for (Index i = first; i < std::min(size_, first + (Index{1} << bits)); ++i) {
      wider.write((*this)[i], &piece[static_cast<std::size_t>(i - first) * width]);
    }
    pieces_[static_cast<std::size_t>(first >> bits)].reset();
    wider.pieces_.push_back(std::move(piece));
  }
  pieces_ = std::move(wider.pieces_);
  width_ = width;
}

void PackedIdentities::append(const Identity& identity) {
  const auto n_bytes = static_cast<std::size_t>(bit_width(identity.first) + 7) / 8;
  const std::size_t width = identity.second != 0 ? 16 : n_bytes;
  if (width > width_) widen(width);
  if ((size_ & mask) == 0) pieces_.push_back(empty_piece());
  const Index i = size_++;
  write(identity, &pieces_.back()[static_cast<std::size_t>(i & mask) * width_]);
}

Numbering::Numbering(std::uint64_t seed)
    : seed_(seed), number_bits_(10), slots_(std::size_t{1} << 10) {}

std::uint64_t Numbering::hash(const Identity& identity) const {
  return splitmix(splitmix(identity.first ^ seed_) + identity.second);
}

std::size_t Numbering::place(std::uint64_t hash) const {
  return static_cast<std::size_t>(Wide{hash} * slots_.size() >> 64);
}

// The last bits of the hash, of which places depend on the first.
std::uint32_t Numbering::slot(Index number, std::uint64_t hash) const {
  return static_cast<std::uint32_t>(hash << number_bits_ | static_cast<std::uint64_t>(number + 1));
}

bool Numbering::may_be(std::uint32_t slot, std::uint64_t hash) const {
  const auto bits = static_cast<std::uint32_t>(hash << number_bits_);
  return std::uint64_t{slot ^ bits} >> number_bits_ == 0;
}

Index Numbering::number_in(std::uint32_t slot) const {
  return static_cast<Index>(slot & ((std::uint64_t{1} << number_bits_) - 1)) - 1;
}

// The identities stay where they are, so that the slots of before can go before there are new ones.
void Numbering::make_room(Index size) {
  if (size >= Index{std::numeric_limits<std::uint32_t>::max()}) {
    throw std::length_error("more than 2^32 - 2 people");
  }
  std::size_t n_slots = slots_.size();
  while (!has_room(n_slots, size)) n_slots += n_slots / 2;
  if (n_slots == slots_.size()) return;
  slots_ = {};
  slots_.resize(n_slots);
  number_bits_ = std::min(bit_width(n_slots), 32);
  for (Index first = 0; first < people_.size(); first += rows_at_once) {
    const Index n = std::min(rows_at_once, people_.size() - first);
    std::uint64_t hashes[rows_at_once];
    for (Index i = 0; i < n; ++i) {
      hashes[i] = hash(people_[first + i]);
      expect_to_read(&slots_[place(hashes[i])]);
    }
    for (Index i = 0; i < n; ++i) {
      std::size_t at = place(hashes[i]);
      while (slots_[at] != 0) at = next(at);
      slots_[at] = slot(first + i, hashes[i]);
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
    if (is_open) make_room(people_.size() + n);
    Identity each[rows_at_once];
    std::uint64_t hashes[rows_at_once];
    for (Index i = 0; i < n; ++i) {
      each[i] = {words(first + i, 0), words(first + i, 1)};
      hashes[i] = hash(each[i]);
      expect_to_read(&slots_[place(hashes[i])]);
    }
    // Where each may be is asked for before it is looked at.
    std::size_t places[rows_at_once];
    for (Index i = 0; i < n; ++i) {
      std::size_t& at = places[i] = place(hashes[i]);
      while (slots_[at] != 0 && !may_be(slots_[at], hashes[i])) at = next(at);
      if (slots_[at] != 0) expect_to_read(people_.address(number_in(slots_[at])));
    }
    for (Index i = 0; i < n; ++i) {
      std::size_t at = places[i];
      while (slots_[at] != 0 &&
             !(may_be(slots_[at], hashes[i]) && people_[number_in(slots_[at])] == each[i])) {
        at = next(at);
      }
      if (slots_[at] == 0 && is_open) {
        slots_[at] = slot(people_.size(), hashes[i]);
        people_.append(each[i]);
      }
      numbers[first + i] = slots_[at] == 0 ? -1 : number_in(slots_[at]);
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
  for (std::size_t m = 0; m < dues_.size(); ++m) dues_[m] = due(m);
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

std::uint64_t Shares::n_rows(Index person) const {
  return std::uint64_t{n_full_.get(person)} << 8 | (people_[person].words[2] & 0xFFu);
}

// Of 2^32 - 1 rows there are no more.
void Shares::add_row(Index person) {
  std::uint16_t& word = people_[person].words[2];
  if ((word & 0xFFu) != 0xFFu) {
    ++word;
  } else if (std::uint32_t& n_full = n_full_.make(person); n_full < (1u << 24) - 1) {
    ++n_full;
    word = static_cast<std::uint16_t>(word & 0xFF00u);
  }
}

Shares::Due Shares::due(std::uint64_t m) const {
  const std::uint64_t alike = std::max(m, most_alike_);
  const std::uint64_t whole = std::uint64_t{1} << bits_;
  return {alike << (unit_bits - bits_), m >= most_alike_ ? whole : (whole * m + alike / 2) / alike,
          m * (whole / alike), whole / alike};
}

Shares::Due Shares::due(Index person, std::uint64_t m) const {
  Due its = m < dues_.size() ? dues_[m] : due(m);
  if (weighted_) {
    const Weighed& has = weighed_[person];
    its.floors = has.floors;
    its.total = std::max((has.units + its.unit / 2) / its.unit, its.floors);
  }
  return its;
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
    std::uint64_t most = most_rows_;
    for_each_row(persons, units, [&](Index i, Index p, std::uint64_t unit) {
      Person& person = people_[p];
      if (unit > 0 && kept(keys[i]) < person.least()) person.set_least(kept(keys[i]));
      add_row(p);
      most = std::max(most, n_rows(p));
      if (weighted_) weighed_[p].units = std::min(weighed_[p].units + unit, std::uint64_t{1} << 63);
    });
    most_rows_ = most;
    return;
  }
  require(persons, keys, units, static_cast<std::uint64_t>(n_people_));
  for_each_row(persons, units, [&](Index i, Index p, std::uint64_t unit) {
    if (pass_ == Pass::floors) {
      weighed_[p].floors += unit / due(p, n_rows(p)).unit;
    } else if (const std::uint64_t m = n_rows(p);
               m > few_ && keys[i] < threshold(due(p, m), unit)) {
      std::uint32_t& n_more = n_more_.make(p);
      if (n_more < std::numeric_limits<std::uint32_t>::max()) ++n_more;
    }
  });
}

bool Shares::end_pass() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pass_ == Pass::rows && weighted_ && most_rows_ > 1) {
    pass_ = Pass::floors;
  } else if (pass_ < Pass::more && most_rows_ > few_) {
    pass_ = Pass::more;
  } else {
    pass_ = Pass::none;
  }
  return pass_ != Pass::none;
}

template <class Share>
void Shares::share(const ConstVectorView<std::int64_t>& persons,
                   const ConstVectorView<std::uint64_t>& keys,
                   const ConstVectorView<std::int64_t>& units, VectorView<std::uint8_t> are_open,
                   VectorView<Share> shares) {
  const std::lock_guard<std::mutex> lock(mutex_);
  dpgep::require(pass_ == Pass::none, "rows were not counted, or are to be counted again");
  require(persons, keys, units, static_cast<std::uint64_t>(n_people_));
  dpgep::require(are_open.size() >= (n_people_ + 7) / 8,
                 "are_open must have a bit for each person");
  dpgep::require(shares.size() == persons.size(), "shares must have an entry for each row");
  dpgep::require(bits_ < std::numeric_limits<Share>::digits, "shares must have room for bits");
  for_each_row(persons, units, [&](Index i, Index p, std::uint64_t unit) {
    const std::uint64_t m = n_rows(p);
    dpgep::require(m > 0, "a person has no rows that were counted");
    const Due its = due(p, m);
    std::uint64_t share = weighted_ ? unit / its.unit : its.whole_share;
    if (m == 1) {
      share = its.total;
    } else {
      std::uint64_t left = its.total - its.floors;
      const std::uint32_t n_more = m > few_ ? n_more_.get(p) : 0;
      if (n_more > 0 && n_more <= left) {
        left -= n_more;
        if (keys[i] < threshold(its, unit)) ++share;
      }
      std::uint8_t& bits = are_open[p >> 3];
      const auto bit = static_cast<std::uint8_t>(1u << (p & 7));
      if (unit > 0 && kept(keys[i]) == people_[p].least() && (bits & bit) != 0) {
        bits = static_cast<std::uint8_t>(bits & ~bit);
        share += left;
      }
    }
    shares[i] = static_cast<Share>(share);
  });
}

template void Shares::share(const ConstVectorView<std::int64_t>&,
                            const ConstVectorView<std::uint64_t>&,
                            const ConstVectorView<std::int64_t>&, VectorView<std::uint8_t>,
                            VectorView<std::int16_t>);
template void Shares::share(const ConstVectorView<std::int64_t>&,
                            const ConstVectorView<std::uint64_t>&,
                            const ConstVectorView<std::int64_t>&, VectorView<std::uint8_t>,
                            VectorView<std::int64_t>);

}  // namespace dpgep
