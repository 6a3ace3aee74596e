// Which instruction-set levels this processor runs. Compiled for the baseline: it is asked before
// any variant of the core is loaded. Python's own interface, since pybind11 takes seconds to
// compile.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif

namespace {

#if defined(__x86_64__) && defined(__GNUC__)
bool has(unsigned bits, unsigned wanted) {
  return (bits & wanted) == wanted;
}

// The operating system saves the wide registers (XCR0).
bool saves_avx() {
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return has(low, 0x6);
}

// Asked of the processor: __builtin_cpu_supports does not know all of these by names that compilers
// share, and says no to each where a run time came without its table, as zig's does.
bool has_v3() {
  constexpr unsigned pclmul = 1u << 1, fma = 1u << 12, movbe = 1u << 22, osxsave = 1u << 27,
                     avx = 1u << 28;
  constexpr unsigned f16c = 1u << 29, bmi = 1u << 3, avx2 = 1u << 5, bmi2 = 1u << 8;
  constexpr unsigned lzcnt = 1u << 5;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  if (!has(ecx, pclmul | fma | movbe | osxsave | avx | f16c) || !saves_avx()) return false;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  if (!has(ebx, bmi | avx2 | bmi2)) return false;
  return __get_cpuid(0x80000001u, &eax, &ebx, &ecx, &edx) != 0 && has(ecx, lzcnt);
}
#else
bool has_v3() {
  return false;
}
#endif

PyObject* levels(PyObject* /*module*/, PyObject* /*no_arguments*/) {
  if (has_v3()) return Py_BuildValue("(ss)", "baseline", "v3");
  return Py_BuildValue("(s)", "baseline");
}

PyMethodDef methods[] = {
    {"levels", levels, METH_NOARGS,
     "The levels this processor runs, ascending: 'baseline', then 'v3' (x86-64-v3)."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "_cpu",
    "The instruction-set levels of this processor (private).",
    0,
    methods,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__cpu() {
  return PyModuleDef_Init(&definition);
}
