#include "device/token.h"

#include <utility>

#include "gil.h"
#include "runtime/bridge.h"
#include "storage/device_buffer.h"

namespace neuron {

Token::~Token() { release_object(object_); }

void Token::wait() noexcept {
  if (done() || python_finalizing()) {
    return;
  }
  Gil gil;
  if (object_ == nullptr) {  // another thread finished it while this one waited for the GIL
    return;
  }
  std::exception_ptr error;
  try {
    runtime::wait_token(Py_NewRef(object_), op_);
  } catch (...) {
    error = std::current_exception();
  }
  finish(std::move(error));
  Py_CLEAR(object_);
}

void Token::finish(std::exception_ptr error) {
  const auto now = Clock::now();
  std::lock_guard<std::mutex> lock(mutex_);
  if (!done()) {
    finished_ = now;
    error_ = std::move(error);
    done_.store(true, std::memory_order_release);
  }
}

std::exception_ptr Token::take_error() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(error_, nullptr);
}

}  // namespace neuron
