// An owned Python reference, released at the end of its scope. The GIL must be held.
#pragma once

#include <Python.h>

namespace neuron {

class Ref {
 public:
  explicit Ref(PyObject* object = nullptr) : object_(object) {}
  ~Ref() { Py_XDECREF(object_); }
  Ref(Ref&& other) noexcept : object_(other.release()) {}
  Ref& operator=(Ref&& other) noexcept {
    PyObject* old = object_;
    object_ = other.release();
    Py_XDECREF(old);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;

  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  PyObject* release() {
    PyObject* object = object_;
    object_ = nullptr;
    return object;
  }

 private:
  PyObject* object_;
};

// Dynamo leaves Python code alone that this thread runs in this scope: the core's own, called in the middle of a frame
// that Dynamo looks at. The GIL must be held.
class NoDynamo {
 public:
  NoDynamo();
  ~NoDynamo();
  NoDynamo(const NoDynamo&) = delete;
  NoDynamo& operator=(const NoDynamo&) = delete;

 private:
  PyObject* callback_;
};

}  // namespace neuron
