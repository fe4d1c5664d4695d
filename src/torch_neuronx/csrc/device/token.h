// A piece of dispatched work: known by an object of the runtime that can be waited for.
#pragma once

#include <Python.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>

namespace neuron {

using Clock = std::chrono::steady_clock;

class Token {
 public:
  // Steals the reference; `op`, which lives for ever, names the work in its error.
  explicit Token(PyObject* object, const char* op = nullptr) : object_(object), op_(op) {}
  ~Token();
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;

  // Returns when the work is done, whether or not it failed. Takes the GIL to start waiting.
  void wait() noexcept;
  bool done() const { return done_.load(std::memory_order_acquire); }

  // Valid once done: when the first waiter saw it finish.
  Clock::time_point finished() const { return finished_; }

  // The error of failed work, handed out once; null if it went well.
  std::exception_ptr take_error();

 private:
  void finish(std::exception_ptr error);

  PyObject* object_;  // dropped when done; touched only with the GIL held
  const char* op_;
  std::atomic<bool> done_{false};
  std::mutex mutex_;  // of the two below
  Clock::time_point finished_{};
  std::exception_ptr error_;
};

}  // namespace neuron
