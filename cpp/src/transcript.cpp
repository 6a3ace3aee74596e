#include "dpgep/transcript.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace dpgep {
namespace {

std::vector<std::int64_t> entries_of(const Rows<std::int64_t>& rows) {
  std::vector<std::int64_t> entries;
  entries.reserve(static_cast<std::size_t>(rows.size()));
  for (Index i = 0; i < rows.rows(); ++i) {
    entries.insert(entries.end(), rows.row(i).begin(), rows.row(i).end());
  }
  return entries;
}

void set_entries(Rows<std::int64_t> rows, const std::vector<std::int64_t>& entries) {
  auto entry = entries.begin();
  for (Index i = 0; i < rows.rows(); ++i) {
    for (Index j = 0; j < rows.cols(); ++j) rows(i, j) = *entry++;
  }
}

std::string described(const Query& query) {
  std::ostringstream words;
  words << query.law << " (" << query.n_rows << ", " << query.n_cols << ")";
  if (query.scales.size() <= 2) {
    for (const std::int64_t scale : query.scales) words << " scale " << scale;
  }
  return words.str();
}

bool is_same_question(const Query& a, const Query& b) {
  return a.law == b.law && a.n_rows == b.n_rows && a.n_cols == b.n_cols && a.scales == b.scales &&
         a.direction == b.direction && a.low_bits == b.low_bits &&
         a.exact_high.size() == b.exact_high.size();
}

}  // namespace

void Transcript::noise(Query query, const Limbs& values, const std::function<void()>& draw) {
  const std::lock_guard<std::mutex> lock(mutex_);
  require_open();
  query.n_rows = values.low.rows();
  query.n_cols = values.low.cols();
  query.low_bits = values.bits;
  query.exact = entries_of(values.low);
  query.exact_high = entries_of(values.high);
  if (const Query* const past = scripted(query)) {
    set_entries(values.low, past->answer);
    set_entries(values.high, past->answer_high);
  } else {
    draw_for(query, draw);
  }
  query.answer = entries_of(values.low);
  query.answer_high = entries_of(values.high);
  queries_.push_back(std::move(query));
}

void Transcript::sample(Index n, double rate, std::vector<Index>& members,
                        const std::function<void()>& draw) {
  const std::lock_guard<std::mutex> lock(mutex_);
  require_open();
  Query query{"sample"};
  query.direction = {rate};
  query.exact = {n};
  if (const Query* const past = scripted(query)) {
    members.clear();
    for (const std::int64_t member : past->answer) {
      if (member < n) members.push_back(member);
    }
    for (Index added = past->exact[0]; added < n; ++added) members.push_back(added);
  } else {
    draw_for(query, draw);
  }
  query.answer.assign(members.begin(), members.end());
  queries_.push_back(std::move(query));
}

void Transcript::bytes(std::uint8_t* out, std::size_t n, const std::function<void()>& draw) {
  const std::lock_guard<std::mutex> lock(mutex_);
  require_open();
  Query query{"bytes", 1, static_cast<Index>(n)};
  if (const Query* const past = scripted(query)) {
    std::copy(past->answer.begin(), past->answer.end(), out);
  } else {
    draw_for(query, draw);
  }
  query.answer.assign(out, out + n);
  queries_.push_back(std::move(query));
}

void Transcript::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_open_ = false;
}

void Transcript::require_open() const {
  if (!is_open_) throw std::logic_error("a noise stream of an audit that is over draws nothing");
}

void Transcript::require_query() const {
  if (drawing_ == nullptr) {
    throw std::logic_error("a noise stream is read in a way that no audit can replay");
  }
}

void Transcript::drew(const chacha20::Key& key) {
  drawing_->keys.push_back(key);
}

// The script's answer to the query; null where there is no script.
const Query* Transcript::scripted(Query& query) {
  if (script_ == nullptr) return nullptr;
  const std::size_t place = queries_.size();
  const auto diverge = [&](const std::string& how) {
    if (divergence_.empty()) divergence_ = "query " + std::to_string(place + 1) + how;
    throw Diverged(divergence_);
  };
  if (place >= script_->queries_.size()) diverge(" is one more: " + described(query));
  const Query& past = script_->queries_[place];
  if (!is_same_question(past, query)) {
    diverge(" was " + described(past) + " and is " + described(query));
  }
  if (!past.failure.empty()) {
    query.failure = past.failure;
    queries_.push_back(query);
    throw std::invalid_argument(past.failure);
  }
  return &past;
}

void Transcript::draw_for(Query& query, const std::function<void()>& draw) {
  drawing_ = &query;
  try {
    draw();
  } catch (const std::exception& error) {
    drawing_ = nullptr;
    query.failure = error.what();
    queries_.push_back(query);
    throw;
  }
  drawing_ = nullptr;
}

}  // namespace dpgep
