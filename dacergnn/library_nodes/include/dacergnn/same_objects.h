// Tells whether objects of Python are as they were, by their addresses. Python itself would touch all objects that it
// compares, to count references.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "read_tensors.h"

// Functions of Python's interface; its headers need not be installed.
extern "C" std::ptrdiff_t PyDict_Size(void *table);
extern "C" int PyDict_Next(void *table, std::ptrdiff_t *position, void **key, void **value);
extern "C" std::ptrdiff_t PyObject_Size(void *object);
extern "C" void *PyObject_GetIter(void *object);
extern "C" void *PyIter_Next(void *iterator);
extern "C" void *PyObject_GetAttr(void *object, void *name);
extern "C" void *PyObject_GenericGetDict(void *object, void *context);
extern "C" void *PyObject_Type(void *object);
extern "C" long long PyLong_AsLongLong(void *number);
extern "C" void Py_DecRef(void *object);

namespace dacergnn {

// Reads numbers and addresses one after the other.
struct Words {
  const std::int64_t *next;
  std::int64_t number() { return *next++; }
  void *object() { return (void *)*next++; }
};

// Gives a new reference back and returns the object, which its owner keeps alive.
inline void *borrowed(void *object) {
  if (object) {
    Py_DecRef(object);
  } else {
    PyErr_Clear();
  }
  return object;
}

// Compares dictionaries. `expected`: their number, the dictionaries, then of each its size, keys and values in order.
inline bool same_tables(Words &expected) {
  const std::int64_t count = expected.number(), *tables = expected.next;
  expected.next += count;
  for (std::int64_t i = 0; i < count; ++i) __builtin_prefetch((void *)tables[i]);
  for (std::int64_t i = 0; i < count; ++i) {
    void *table = (void *)tables[i], *key, *value;
    std::int64_t size = expected.number();
    if (PyDict_Size(table) != size) return false;
    for (std::ptrdiff_t position = 0; size > 0; --size)
      if (!PyDict_Next(table, &position, &key, &value) || key != expected.object() || value != expected.object())
        return false;
  }
  return true;
}

// Compares a list. `expected`: the list, its size, its items.
inline bool same_list(Words &expected) {
  void *list = expected.object();
  const std::int64_t size = expected.number();
  if (PyList_Size(list) != size) return false;
  for (std::int64_t i = 0; i < size; ++i)
    if (PyList_GetItem(list, i) != expected.object()) return false;
  return true;
}

// Compares a set or an ordered dictionary. `expected`: the object, its size, the items that it yields in order.
inline bool same_order(Words &expected) {
  void *items = expected.object();
  std::int64_t size = expected.number();
  if (PyObject_Size(items) != size) return false;
  if (size == 0) return true;
  void *iterator = PyObject_GetIter(items);
  bool same = iterator != nullptr;
  for (; same && size > 0; --size) same = borrowed(PyIter_Next(iterator)) == expected.object();
  borrowed(iterator);
  return same;
}

// Compares a part of an object. `expected`: the object, and the result of `part` for it.
template <void *(*part)(void *)>
bool same_part(Words &expected) {
  void *object = expected.object();
  return part(object) == expected.object();
}

inline void *class_of(void *object) { return borrowed(PyObject_Type(object)); }
inline void *dictionary_of(void *object) { return borrowed(PyObject_GenericGetDict(object, nullptr)); }

// Implements a built-in function of Python, whose argument is an address. There is what `same_tables` reads and then,
// for each of the other functions, the number of its calls and what it reads in each.
inline void *same_objects(void *const *arguments) {
  Words expected{(const std::int64_t *)PyLong_AsVoidPtr(arguments[0])};
  if (!same_tables(expected)) return PyBool_FromLong(0);
  for (const auto same : {same_list, same_order, same_part<class_of>, same_part<dictionary_of>})
    for (std::int64_t count = expected.number(); count > 0; --count)
      if (!same(expected)) return PyBool_FromLong(0);
  return PyBool_FromLong(1);
}

// Names of attributes.
struct Names {
  void *requires_grad, *version;
};

// Passes the look of a tensor to `note`, number by number, until it returns false. The look of floating-point tensors
// has none of their contents; for others it includes how often they were written to, and their number of attributes.
template <class Note>
bool form_of(void *tensor, int (*describe)(void *, Tensor *), Names names, Note note) {
  constexpr int floating = 2, brain_floating = 4;
  Tensor found;
  if (describe(tensor, &found)) {
    PyErr_Clear();
    return false;
  }
  if (!note((std::int64_t)borrowed(PyObject_GetAttr(tensor, names.requires_grad))) || !note(found.device) ||
      !note(found.device_id) || !note(found.code) || !note(found.bits) || !note(found.lanes) || !note(found.dimensions))
    return false;
  for (int d = 0; d < found.dimensions; ++d)
    if (!note(found.shape[d]) || !note(found.strides[d])) return false;
  if (found.code == floating || found.code == brain_floating) return true;
  void *version = PyObject_GetAttr(tensor, names.version);
  if (!version) {
    PyErr_Clear();
    return false;
  }
  const std::int64_t written = PyLong_AsLongLong(version);
  Py_DecRef(version);
  return note(written) && note(PyDict_Size(dictionary_of(tensor)));
}

}  // namespace dacergnn
