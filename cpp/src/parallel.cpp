#include "dpgep/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

namespace dpgep {

namespace {

// After a rest Linux begins a new thread on the processor of the one that made it, where it waits
// for a millisecond, as long as most calls take: it is moved to another, and then is free again.
void move_away(std::thread& helper) {
#ifdef __linux__
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  cpu_set_t others = all;
  CPU_CLR(static_cast<unsigned>(sched_getcpu()), &others);
  if (pthread_setaffinity_np(helper.native_handle(), sizeof others, &others) == 0) {
    pthread_setaffinity_np(helper.native_handle(), sizeof all, &all);
  }
#else
  static_cast<void>(helper);
#endif
}

}  // namespace

void require_threads(int n_threads) {
  if (n_threads < 1) {
    throw std::invalid_argument("n_threads must satisfy n_threads >= 1, not " +
                                std::to_string(n_threads));
  }
}

void parallel_for(Index n_tasks, int n_threads, const std::function<void(Index)>& task) {
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
      move_away(helpers.back());
    } catch (const std::system_error&) {
      break;  // no more threads to be had: fewer do the same work
    }
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace dpgep
