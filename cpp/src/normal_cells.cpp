#include "dpgep/normal_cells.hpp"

#include <stdexcept>

namespace dpgep {
namespace {

// A whole part, and 576 binary digits, cut off. In units of 2^-576, e^(-1/2048) is wrong by less
// than 2^7, its odd powers, one after another, by 2^18, their products e^(-i^2 / 2048) by 2^28,
// sums of these by 2^38, and c_i by 2^33: that is 2 in units of 2^-544.
constexpr std::size_t n_words = 10;
constexpr std::uint64_t doubt = 256;
using Number = std::array<std::uint64_t, n_words>;
__extension__ using Wide = unsigned __int128;

void add(Number& sum, const Number& term) {
  Wide carry = 0;
  for (std::size_t k = n_words; k-- > 0;) {
    carry += static_cast<Wide>(sum[k]) + term[k];
    sum[k] = static_cast<std::uint64_t>(carry);
    carry >>= 64;
  }
}

void subtract(Number& difference, const Number& term) {
  std::uint64_t borrow = 0;
  for (std::size_t k = n_words; k-- > 0;) {
    const Wide taken = static_cast<Wide>(term[k]) + borrow;
    borrow = difference[k] < taken ? 1 : 0;
    difference[k] -= static_cast<std::uint64_t>(taken);
  }
}

Number divided(Number number, std::uint64_t divisor) {
  Wide rest = 0;
  for (std::uint64_t& word : number) {
    rest = rest << 64 | word;
    word = static_cast<std::uint64_t>(rest / divisor);
    rest %= divisor;
  }
  return number;
}

Number times(const Number& a, const Number& b) {
  std::array<std::uint64_t, 2 * n_words> product{};
  for (std::size_t i = n_words; i-- > 0;) {
    Wide carry = 0;
    for (std::size_t j = n_words; j-- > 0;) {
      carry += static_cast<Wide>(a[i]) * b[j] + product[i + j + 1];
      product[i + j + 1] = static_cast<std::uint64_t>(carry);
      carry >>= 64;
    }
    product[i] = static_cast<std::uint64_t>(carry);
  }
  Number high{};
  for (std::size_t k = 0; k < n_words; ++k) high[k] = product[k + 1];
  return high;
}

// e^(-1/2048) by its series.
Number root() {
  Number value{1}, term{1};
  for (std::uint64_t n = 1; n <= 48; ++n) {
    term = divided(term, 2048 * n);
    n % 2 == 1 ? subtract(value, term) : add(value, term);
  }
  return value;
}

}  // namespace

const NormalCells& NormalCells::get() {
  static const NormalCells cells;
  return cells;
}

NormalCells::NormalCells() {
  Number weight{1}, ratio = root(), sum{};  // the i-th ratio is e^(-(2i + 1) / 2048)
  const Number square = times(ratio, ratio);
  for (std::size_t i = 0; i < n_cells; ++i) {
    add(sum, weight);
    weight = times(weight, ratio);
    ratio = times(ratio, square);
    const Number end = divided(sum, 41);
    ends_[i] = static_cast<std::uint32_t>(end[1] >> 32);
    for (std::size_t k = 0; k < digits_[i].size(); ++k) {
      digits_[i][k] = end[k + 1] << 32 | end[k + 2] >> 32;
    }
    const std::uint64_t rest =
        end[8] << 32 | end[9] >> 32;  // the digits from the 481st to the 544th
    if (rest < doubt || rest > ~doubt) {
      throw std::logic_error("the digits of a cell's end are in doubt");
    }
  }
  std::size_t cell = 0;
  for (std::size_t k = 0; k < first_.size(); ++k) {
    while (cell < n_cells && ends_[cell] < k << 21) ++cell;
    first_[k] = static_cast<std::uint16_t>(cell);
  }
}

}  // namespace dpgep
