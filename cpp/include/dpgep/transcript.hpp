// What a run asked of its noise, kept by an audit: the exact values, and what was answered. A
// second run, on other data, gets the same answers, so that whatever differs between the two does
// not come from answers alone.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "dpgep/chacha20.hpp"
#include "dpgep/typedefs.hpp"

namespace dpgep {

// What a second run asked is not what the first one did.
class Diverged : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Integers high 2^bits + low. Without a high limb, low alone.
struct Limbs {
  Rows<std::int64_t> low;
  Rows<std::int64_t> high;
  int bits = 0;
};

// One use of a stream. Laws of noise: "independent", of one scale; "symmetric", of a scale on the
// diagonal and one above it; "along", of a scale for each entry, plus `direction` times one deviate
// of the last scale, which all entries share. Other uses: "sample", members of a Poisson sample of
// rate direction[0]; "bytes".
struct Query {
  std::string law;
  Index n_rows = 0;
  Index n_cols = 0;
  std::vector<std::int64_t> scales{};
  std::vector<double> direction{};
  int low_bits = 0;
  // Row by row; high limbs are empty where there are none. Of a symmetric matrix, the upper
  // triangle is meant.
  std::vector<std::int64_t> exact{}, exact_high{}, answer{}, answer_high{};
  std::vector<chacha20::Key> keys{};  // those drawn for it
  std::string failure{};              // why there is no answer
};

// Its functions may be called from several threads: queries follow one another.
class Transcript {
 public:
  // With a script, its answers are given again.
  explicit Transcript(std::shared_ptr<const Transcript> script = nullptr)
      : script_(std::move(script)) {}

  const std::vector<Query>& queries() const { return queries_; }
  // From here on streams that still have it throw std::logic_error: the audit is over.
  void close();
  // How the run left the script; empty while it follows.
  const std::string& divergence() const { return divergence_; }

  // draw() adds noise of the query's law to the values; a script's answer takes its place. Throws
  // Diverged where the script has another query.
  void noise(Query query, const Limbs& values, const std::function<void()>& draw);

  // draw() finds a sample of 0, ..., n - 1. From a script: its members below n, and whoever its own
  // run did not have, so that people who are added are in every sample.
  void sample(Index n, double rate, std::vector<Index>& members, const std::function<void()>& draw);

  // draw() fills bytes.
  void bytes(std::uint8_t* out, std::size_t n, const std::function<void()>& draw);

  // Called where a stream is read: throws std::logic_error outside the functions above, as nobody
  // could replay what is made of it.
  void require_query() const;
  void drew(const chacha20::Key& key);

 private:
  void require_open() const;
  const Query* scripted(Query& query);
  void draw_for(Query& query, const std::function<void()>& draw);

  std::shared_ptr<const Transcript> script_;
  std::mutex mutex_;
  std::vector<Query> queries_;
  std::string divergence_;
  Query* drawing_ = nullptr;
  bool is_open_ = true;
};

}  // namespace dpgep
