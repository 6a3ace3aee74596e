// Work split over threads that live no longer than one call of a kernel, so that a fork between
// calls finds none.
#pragma once

#include <functional>

#include "dpgep/typedefs.hpp"

namespace dpgep {

// Throws std::invalid_argument unless n_threads >= 1.
void require_threads(int n_threads);

// task(0), ..., task(n_tasks - 1), each once, in any order, by the caller and at most n_threads - 1
// others. An exception of a task is thrown here, after every thread has stopped; the tasks not yet
// begun are then left out. What a task writes must depend on its number alone. No template: threads
// are slow to compile, and a task is long enough for a call that is not inlined.
void parallel_for(Index n_tasks, int n_threads, const std::function<void(Index)>& task);

}  // namespace dpgep
