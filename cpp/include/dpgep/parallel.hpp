// Work split over threads that live no longer than one call of a kernel, so that a fork between
// calls finds none.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "dpgep/typedefs.hpp"

namespace dpgep {

inline void require_threads(int n_threads) {
  if (n_threads < 1) {
    throw std::invalid_argument("n_threads must satisfy n_threads >= 1, not " +
                                std::to_string(n_threads));
  }
}

// task(0), ..., task(n_tasks - 1), each once, in any order, by the caller and at most n_threads - 1
// others. An exception of a task is thrown here, after every thread has stopped; the tasks not yet
// begun are then left out. What a task writes must depend on its number alone.
template <class Task>
void parallel_for(Index n_tasks, int n_threads, const Task& task) {
  require_threads(n_threads);
  std::atomic<Index> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    try {
      for (Index i = next++; i < n_tasks; i = next++) task(i);
    } catch (...) {
      next = n_tasks;
      const std::lock_guard<std::mutex> lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  const Index n_helpers = std::min<Index>(n_threads, n_tasks) - 1;
  if (n_helpers > 0) helpers.reserve(static_cast<std::size_t>(n_helpers));
  for (Index i = 0; i < n_helpers; ++i) {
    try {
      helpers.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // no more threads to be had: fewer do the same work
    }
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace dpgep
