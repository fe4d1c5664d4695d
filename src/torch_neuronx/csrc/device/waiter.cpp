#include "device/waiter.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "gil.h"
#include "storage/device_buffer.h"

namespace neuron {
namespace {

class Waiter {
 public:
  Waiter() : thread_([this] { run(); }) {}

  void add(const std::vector<std::shared_ptr<Token>>& work) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      queue_.insert(queue_.end(), work.begin(), work.end());
    }
    wake_.notify_one();
  }

  // Work always ends, so this returns after the piece that is running; the rest is not waited for.
  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    NoGil released;
    thread_.join();
  }

 private:
  std::shared_ptr<Token> take() {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) {
      return nullptr;
    }
    auto token = std::move(queue_.front());
    queue_.pop_front();
    return token;
  }

  void run() {
    while (auto token = take()) {
      token->wait();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Token>> queue_;
  bool stopping_ = false;
  std::thread thread_;
};

// Leaked, and forgotten by a forked child, which has the object but not its thread.
Waiter* waiter = nullptr;
std::mutex starting;

void forget_in_child() {
  waiter = nullptr;
  new (&starting) std::mutex();
}

[[maybe_unused]] const int fork_handler = pthread_atfork(nullptr, nullptr, &forget_in_child);

Waiter* started() {
  std::lock_guard<std::mutex> lock(starting);
  if (waiter == nullptr && !python_finalizing()) {
    waiter = new Waiter();
  }
  return waiter;
}

}  // namespace

void watch(const std::vector<std::shared_ptr<Token>>& work) {
  if (work.empty()) {
    return;
  }
  if (Waiter* background = started()) {
    background->add(work);
  }
}

bool all_done(const std::vector<std::shared_ptr<Token>>& work) {
  const bool done = std::all_of(work.begin(), work.end(), [](const auto& token) { return token->done(); });
  if (!done) {
    watch(work);
  }
  return done;
}

void stop_watching() {
  Waiter* running = nullptr;
  {
    std::lock_guard<std::mutex> lock(starting);
    running = std::exchange(waiter, nullptr);
  }
  if (running != nullptr) {
    running->stop();
  }
}

}  // namespace neuron
