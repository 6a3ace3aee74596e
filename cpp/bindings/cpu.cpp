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
// The builtin knows these three under no name that all compilers share.
bool has_f16c_movbe_lzcnt() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return false;
  const bool f16c = (ecx & (1u << 29)) != 0;
  const bool movbe = (ecx & (1u << 22)) != 0;
  if (__get_cpuid(0x80000001u, &eax, &ebx, &ecx, &edx) == 0) return false;
  const bool lzcnt = (ecx & (1u << 5)) != 0;
  return f16c && movbe && lzcnt;
}

// avx and avx2 include that the operating system saves the wide registers.
bool has_v3() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx") && __builtin_cpu_supports("avx2") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
         __builtin_cpu_supports("fma") && has_f16c_movbe_lzcnt();
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
