// Tells whether the arguments of a call look like those of another one, and finds the tensors among them.
#pragma once

#include "same_edges.h"

extern "C" void *PyList_New(std::ptrdiff_t size);
extern "C" int PyList_Append(void *list, void *item);
extern "C" std::ptrdiff_t PyTuple_Size(void *tuple);
extern "C" void *PyTuple_GetItem(void *tuple, std::ptrdiff_t index);
extern "C" double PyFloat_AsDouble(void *number);
extern "C" int PyObject_RichCompareBool(void *left, void *right, int comparison);

namespace dacergnn {

// Names the kinds of arguments of a call. Numbers follow each kind, as `SameCall` reads them.
enum class Argument : std::int64_t {
  features,   // class, place of the first argument that is the same tensor, what it looks like (`form_of`)
  edges,      // the object, how many attributes it has, whether numbers are compared, these (`numbers_of`)
  the_same,   // the object
  equal,      // class, an object that it equals
  real,       // class, the bits of the number
  tuple,      // class, size, the items
  list,       // class, size, the items
  dictionary  // class, size, for each item a key and the value
};

// Compares the arguments of a call with numbers, or writes some of them.
struct SameCall {
  std::int64_t *numbers;
  int (*describe)(void *, Tensor *);
  Names names;
  bool writes;
  void *leaves;  // a list, of the arguments that are tensors or objects

  std::int64_t next() { return *numbers++; }

  bool note(std::int64_t found) {
    if (writes) *numbers = found;
    return *numbers++ == found;
  }

  static bool equal(void *left, void *right) {
    if (left == right) return true;
    constexpr int equality = 2;  // Py_EQ
    const int found = PyObject_RichCompareBool(left, right, equality);
    if (found < 0) PyErr_Clear();
    return found == 1;
  }

  bool same_features(void *tensor) {
    std::int64_t first = 0;
    while (first < PyList_Size(leaves) && PyList_GetItem(leaves, first) != tensor) ++first;
    return note(first) && form_of(tensor, describe, names, [&](std::int64_t found) { return note(found); });
  }

  bool same_edges(void *tensor) {
    if ((std::int64_t)tensor != next() || !note(PyDict_Size(dictionary_of(tensor)))) return false;
    const bool compared = next() != 0;
    return numbers_of(tensor, describe, names.version, compared, [&](std::int64_t found) { return note(found); });
  }

  bool same_items(void *items, std::ptrdiff_t size, void *(*item)(void *, std::ptrdiff_t)) {
    bool same = size == next();
    for (std::ptrdiff_t i = 0; same && i < size; ++i) same = same_argument(item(items, i));
    return same;
  }

  bool same_dictionary(void *table) {
    std::ptrdiff_t size = PyDict_Size(table), position = 0;
    bool same = size == next();
    for (void *key, *value; same && size > 0; --size)
      same = PyDict_Next(table, &position, &key, &value) && equal(key, (void *)next()) && same_argument(value);
    return same;
  }

  bool leaf(void *object) { return PyList_Append(leaves, object) == 0; }

  bool same_argument(void *object) {
    const Argument argument = (Argument)next();
    if (argument == Argument::edges) return same_edges(object) && leaf(object);
    if (argument == Argument::the_same) return (std::int64_t)object == next() && leaf(object);
    if ((std::int64_t)class_of(object) != next()) return false;
    switch (argument) {
      case Argument::features: return same_features(object) && leaf(object);
      case Argument::equal: return equal(object, (void *)next());
      case Argument::tuple: return same_items(object, PyTuple_Size(object), PyTuple_GetItem);
      case Argument::list: return same_items(object, PyList_Size(object), PyList_GetItem);
      case Argument::dictionary: return same_dictionary(object);
      default: {
        const double number = PyFloat_AsDouble(object);
        return __builtin_bit_cast(std::int64_t, number) == next();
      }
    }
  }
};

// Implements a built-in function of Python. Its arguments are those of a call, as a tuple and a dictionary, the address
// of numbers, and whether to write the numbers for the look of tensors. The caller sets the first four numbers: whether
// the objects of the others still exist, the exchange function, the names "requires_grad" and "_version". Returns a
// list of the tensors and objects among the arguments if these look as the numbers say, else False.
inline void *same_call(void *const *arguments) {
  auto *numbers = (std::int64_t *)PyLong_AsVoidPtr(arguments[2]);
  if (numbers[0] == 0) return PyBool_FromLong(0);
  const Names names{(void *)numbers[2], (void *)numbers[3]};
  const bool writes = PyLong_AsVoidPtr(arguments[3]) != nullptr;
  SameCall call{numbers + 4, (int (*)(void *, Tensor *))numbers[1], names, writes, PyList_New(0)};
  if (call.same_argument(arguments[0]) && call.same_argument(arguments[1])) return call.leaves;
  Py_DecRef(call.leaves);
  return PyBool_FromLong(0);
}

}  // namespace dacergnn
